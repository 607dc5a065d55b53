"""Columns of records in the Arrow layout: built with joins and one accumulate, read in place.

A `BinaryColumn` holds N byte strings as int32 starts[N+1] over one run of bytes, with an optional
validity bitmap (least significant bit first, 1 = present). No function here loops over records in
Python where a join, a sort or a cast does.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import sub
from typing import TypeAlias

import msgspec

Bytes = bytes | memoryview
Ints: TypeAlias = "array[int] | memoryview"


def pad8(length: int) -> int:
    """Zeros needed after `length` bytes to reach a multiple of 8."""
    return -length % 8


def all_present(valid: Bytes, count: int) -> bool:
    """Whether none of the first `count` items of a validity bitmap is null."""
    mask = (1 << count) - 1
    return int.from_bytes(valid, "little") & mask == mask


class BinaryColumn(msgspec.Struct, frozen=True):
    """N byte strings. `valid` is None when none of them is null."""

    starts: Ints
    data: Bytes
    valid: Bytes | None = None

    @classmethod
    def of(cls, items: Sequence[bytes | None]) -> BinaryColumn:
        """A column of `items`; None becomes a null of zero bytes."""
        nulls = [i for i, item in enumerate(items) if item is None] if None in items else []
        if not nulls:
            whole: Sequence[bytes] = items  # type: ignore[assignment]  # no None is in it
            return cls(array("i", accumulate(map(len, whole), initial=0)), b"".join(whole))
        bitmap = bytearray(b"\xff" * ((len(items) + 7) // 8))
        for i in nulls:
            bitmap[i >> 3] &= ~(1 << (i & 7))
        whole = [item or b"" for item in items]
        starts = array("i", accumulate(map(len, whole), initial=0))
        return cls(starts, b"".join(whole), bytes(bitmap))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def is_null(self, i: int) -> bool:
        return self.valid is not None and not self.valid[i >> 3] >> (i & 7) & 1

    def get(self, i: int) -> bytes | None:
        """Item `i`, or None when it is null."""
        if self.is_null(i):
            return None
        return bytes(self.data[self.starts[i] : self.starts[i + 1]])

    def slice(self, begin: int = 0, end: int | None = None) -> list[bytes | None]:
        """Items begin ≤ i < end as a list."""
        starts = self.starts[begin : (len(self) if end is None else end) + 1].tolist()
        first = starts[0]  # only the bytes asked for are copied, once
        data = bytes(self.data[first : starts[-1]])
        items: list[bytes | None] = [data[a - first : b - first] for a, b in pairwise(starts)]
        if self.valid is not None:
            items = [None if self.is_null(begin + i) else x for i, x in enumerate(items)]
        return items

    def largest(self) -> int:
        """Length of the longest item, in bytes (0 for an empty column)."""
        starts = self.starts.tolist()
        return max(map(sub, starts[1:], starts), default=0)


class Columns(msgspec.Struct, frozen=True):
    """N records of one topic. `headers` items are msgpack maps of text to bytes, empty for none.

    `offsets` is given only when the offsets have gaps; else record i has base offset + i.
    """

    timestamps_us: Ints
    values: BinaryColumn
    keys: BinaryColumn | None = None
    headers: BinaryColumn | None = None
    offsets: Ints | None = None

    def __len__(self) -> int:
        return len(self.timestamps_us)


def int64s(items: Iterable[int]) -> array[int]:
    return array("q", items)

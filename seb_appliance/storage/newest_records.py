"""Which records of many are the newest of their record key, in bounded memory.

Record keys are held in a dictionary until they take too much, then written down in their order; at
the end the sorted files are merged. Keys are compared whole, never by a hash of them.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import IO, Final

from seb_appliance import limits

_HEAD: Final = struct.Struct("<Iq")  # length of the record key, number of the record
_OF_A_KEY_BYTES: Final = 160  # that it takes in memory beside its bytes
_BUFFER_BYTES: Final = 64 * limits.KIB


class Survivors:
    """A bit for each record, by its number: whether it stays. `count` of them do."""

    def __init__(self) -> None:
        self.count = 0
        self._bits = bytearray()

    def reach(self, records: int) -> None:
        """There are so many records."""
        self._bits.extend(bytes((records + 7) // 8 - len(self._bits)))

    def keep(self, numbers: Iterable[int]) -> None:
        """These stay, none of which did before."""
        bits = self._bits
        for number in numbers:
            bits[number >> 3] |= 1 << (number & 7)
            self.count += 1

    def are_left_by(self, kept: Survivors, may_go: Survivors) -> bool:
        """Whether `kept` are all of these but perhaps some of `may_go`, and nothing else."""
        ours, stay, go = self.as_number(), kept.as_number(), may_go.as_number()
        return ours | stay == ours and not ours & ~(stay | go)

    def as_number(self) -> int:
        """Its bits, that of record 0 the lowest."""
        return int.from_bytes(self._bits, "little")

    def among(self, first: int, count: int) -> list[int]:
        """Those of `count` records from `first` on that stay, counted from `first`."""
        bits = self._bits
        numbers = range(first, first + count)
        return [i for i, number in enumerate(numbers) if bits[number >> 3] >> (number & 7) & 1]


class NewestRecords:
    """Give `add` all records in the order of their offsets, then ask `finish`. Files without a name
    are made in `folder` when there are many record keys. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.count = 0  # records that were added
        self._folder = folder
        self._newest: dict[bytes, int] = {}
        self._room_bytes = limits.COMPACTION_KEYS_BYTES
        self._sorted: list[IO[bytes]] = []
        self._survivors = Survivors()

    def add(self, keys: Sequence[bytes | None]) -> None:
        """The record keys of the next records; one without stays for sure."""
        first, self.count = self.count, self.count + len(keys)
        self._survivors.reach(self.count)
        before = len(self._newest)
        if None in keys:
            self._survivors.keep(first + i for i, key in enumerate(keys) if key is None)
            keyed = [(key, first + i) for i, key in enumerate(keys) if key is not None]
            self._newest.update(keyed)
            key_bytes = sum(len(key) for key, _ in keyed)
        else:
            self._newest.update(zip(keys, range(first, self.count), strict=True))  # type: ignore[arg-type]
            key_bytes = sum(map(len, keys))  # type: ignore[arg-type]
        if added := len(self._newest) - before:
            self._room_bytes -= _OF_A_KEY_BYTES * added + key_bytes
            if self._room_bytes < 0:
                self._write_down()

    def finish(self) -> Survivors:
        """The newest record of each record key, and those that have none."""
        if self._sorted:
            self._write_down()
            self._survivors.keep(number for _, number in _newest_of(self._sorted))
        else:
            self._survivors.keep(self._newest.values())
        self.close()
        return self._survivors

    def close(self) -> None:
        for file in self._sorted:
            file.close()
        self._sorted = []
        self._newest = {}

    def _write_down(self) -> None:
        self._sorted.append(self._written(sorted(self._newest.items())))
        self._newest, self._room_bytes = {}, limits.COMPACTION_KEYS_BYTES
        if len(self._sorted) >= limits.COMPACTION_SORTED_FILES_MAX:
            merged = self._written(_newest_of(self._sorted))
            for file in self._sorted:
                file.close()
            self._sorted = [merged]

    def _written(self, rows: Iterable[tuple[bytes, int]]) -> IO[bytes]:
        file = tempfile.TemporaryFile(dir=self._folder, buffering=_BUFFER_BYTES)  # noqa: SIM115
        try:
            for key, number in rows:
                file.write(_HEAD.pack(len(key), number))
                file.write(key)
        except BaseException:
            file.close()
            raise
        return file


def _newest_of(files: Sequence[IO[bytes]]) -> Iterator[tuple[bytes, int]]:
    """The last row of each record key, in their order."""
    before: tuple[bytes, int] | None = None
    for row in merge(*map(_rows, files)):
        if before is not None and before[0] != row[0]:
            yield before
        before = row
    if before is not None:
        yield before


def _rows(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    file.seek(0)
    while head := file.read(_HEAD.size):
        length, number = _HEAD.unpack(head)
        yield file.read(length), number

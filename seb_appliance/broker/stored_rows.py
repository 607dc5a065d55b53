"""Where the records of one topic lie that are in segments and packed objects: rows in memory.

A section of an object has about a mebibyte, so that a terabyte takes 60 MB here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TypeAlias

from seb_appliance.broker.index_rows import IndexRows
from seb_appliance.formats.operations import StoredSection

Gone: TypeAlias = tuple[int, int]
"""A row that is no more: the id of its object, and its bytes."""


class StoredRows(IndexRows):
    """`seqs` are the ids of the objects below zero, `bytes_before` count from the first row. Rows
    lie below all rows of entries; `end` stays where it was when the last of them goes. There may be
    holes between rows, of what forks do not need: nobody asks for these offsets."""

    def __init__(self, *, end: int = 0, newest_us: int = 0, total_bytes: int = 0) -> None:
        super().__init__(end=end, newest_us=newest_us, total_bytes=total_bytes)
        self.ends = array("q")  # the offset after those that a row answers for

    def end_of(self, row: int) -> int:
        """The offset after those that the row answers for."""
        return self.ends[row]

    def replace(
        self, base_offset: int, last_offset: int, fresh: Sequence[tuple[int, StoredSection]]
    ) -> list[Gone]:
        """Put sections, each with its object's id, in the place of the rows within base to last
        offset."""
        begin, end = bisect_left(self.bases, base_offset), bisect_right(self.bases, last_offset)
        return self._splice(begin, end, fresh)

    def drop_below(self, offset: int) -> list[Gone]:
        """Drop the rows that lie wholly below `offset`."""
        end = bisect_right(self.ends, offset)
        return self._splice(0, end, ())

    def drop_within(self, begin: int, end: int) -> list[Gone]:
        """Drop the rows that lie wholly within `begin` up to `end` (exclusive), but the last row of
        all: it tells where the rows of entries begin."""
        first = bisect_left(self.bases, begin)
        behind = min(bisect_right(self.ends, end), len(self) - 1)
        return self._splice(first, behind, ()) if first < behind else []

    def _splice(
        self, begin: int, end: int, fresh: Sequence[tuple[int, StoredSection]]
    ) -> list[Gone]:
        gone = [
            (-seq, length)
            for seq, length in zip(self.seqs[begin:end], self.lengths[begin:end], strict=True)
        ]
        sections = [section for _, section in fresh]
        self.bases[begin:end] = array("q", [section.base_offset for section in sections])
        self.seqs[begin:end] = array("q", [-object_id for object_id, _ in fresh])
        self.ends[begin:end] = array("q", [section.last_offset + 1 for section in sections])
        self.starts[begin:end] = array("q", [section.at for section in sections])
        self.lengths[begin:end] = array("q", [section.length for section in sections])
        self.crcs[begin:end] = array("I", [section.crc for section in sections])
        self.created_us[begin:end] = array("q", [section.created_us for section in sections])
        # What is gone may have had the largest timestamp: later rows then promise too much, which
        # costs whoever looks for a time further rows, and nothing else.
        newest = self.newest_us[begin - 1] if begin else 0
        maxima = array("q")
        for section in sections:
            newest = max(newest, section.largest_timestamp_us)
            maxima.append(newest)
        self.newest_us[begin:end] = maxima
        self._sum_bytes(begin, begin + len(fresh), end - begin)
        if sections:
            self.end = max(self.end, sections[-1].last_offset + 1)
        return gone

    def _sum_bytes(self, begin: int, end: int, gone: int) -> None:
        """Bring `bytes_before` up to date from row `begin` on; `gone` rows were there before, rows
        up to `end` are now."""
        at = self.bytes_before[begin] if begin < len(self.bytes_before) else self.total_bytes
        sums = array("q")
        for length in self.lengths[begin:end]:
            sums.append(at)
            at += length
        behind = self.bytes_before[begin + gone :]
        shift = at - (behind[0] if behind else self.total_bytes)
        self.bytes_before[begin:] = sums + array("q", [before + shift for before in behind])
        self.total_bytes += shift

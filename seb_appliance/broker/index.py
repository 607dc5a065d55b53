"""Where the records of one topic lie: one row per section, in arrays, found by bisection.

About 60 bytes a section. Rows are in offset order and their ranges touch: a row answers for the
offsets from its base up to the next row's base.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from seb_appliance.formats.operations import Section


class TopicIndex:
    def __init__(self) -> None:
        self.bases = array("q")
        self.seqs = array("q")
        self.starts = array("q")  # first byte in the object, from the object's beginning
        self.lengths = array("q")
        self.crcs = array("I")
        # Largest record timestamp up to and including this row: clients' times may go back, the
        # running maximum does not, so that a time can be found by bisection.
        self.newest_us = array("q")
        self.created_us = array("q")  # when the section's entry was made
        self.bytes_before = array("q")
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self.bases)

    def add(self, seq: int, sections_at: int, created_us: int, section: Section) -> None:
        self.bases.append(section.base_offset)
        self.seqs.append(seq)
        self.starts.append(sections_at + section.start)
        self.lengths.append(section.length)
        self.crcs.append(section.crc)
        self.created_us.append(created_us)
        newest = self.newest_us[-1] if self.newest_us else section.largest_timestamp_us
        self.newest_us.append(max(newest, section.largest_timestamp_us))
        self.bytes_before.append(self.total_bytes)
        self.total_bytes += section.length

    def bytes_from(self, offset: int, end: int) -> int:
        """About how many stored bytes lie from `offset` to the log end `end`."""
        if offset >= end or not self.bases:
            return 0
        row = max(0, self.row_of(offset))
        row_end = self.bases[row + 1] if row + 1 < len(self.bases) else end
        unread = (row_end - max(offset, self.bases[row])) / (row_end - self.bases[row])
        behind = self.bytes_before[row] + self.lengths[row]
        return int(self.total_bytes - behind + self.lengths[row] * unread)

    def created_at(self, offset: int, end: int) -> int | None:
        """When the entry of the record at `offset` was made; None at the log end `end`."""
        if offset >= end or not self.bases:
            return None
        return self.created_us[max(0, self.row_of(offset))]

    def row_of(self, offset: int) -> int:
        """The row that answers for `offset`; -1 when it is below the first."""
        return bisect_right(self.bases, offset) - 1

    def row_at_time(self, timestamp_us: int) -> int:
        """The row with the first record of that timestamp or later; len(self) if none has it."""
        return bisect_left(self.newest_us, timestamp_us)

"""Where records lie: one row per section of one topic, in arrays, found by bisection.

60 bytes a section. Rows are in offset order and their ranges touch: a row answers for the offsets
from its base up to the next row's base, the last one up to `end`. The newest rows of a topic are in
memory (index.py); the older ones are pages in SQLite, which are packed and unpacked here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import add
from typing import Final, TypeAlias

from seb_appliance.formats.contents import Section
from seb_appliance.formats.operations import StoredSection

_COLUMNS: Final = "qqqqIqqq"
ROW_BYTES: Final = sum(array(kind).itemsize for kind in _COLUMNS)

# Of an entry: its seq, the position in the object of its first section, when it was made.
EntryPlace: TypeAlias = tuple[int, int, int]


class IndexRows:
    """Rows that follow others, of which these are known: `end`, the offset after them;
    `newest_us`, the largest timestamp among them; `total_bytes`, of all their sections. The three
    move on with each row that is added."""

    def __init__(self, *, end: int = 0, newest_us: int = 0, total_bytes: int = 0) -> None:
        self.bases = array("q")
        self.seqs = array("q")
        self.starts = array("q")  # first byte in the object, from the object's beginning
        self.lengths = array("q")
        self.crcs = array("I")
        # Largest record timestamp up to and including this row: clients' times may go back, the
        # running maximum does not, so that a time can be found by bisection.
        self.newest_before_us = newest_us
        self.newest_us = array("q")
        self.created_us = array("q")  # when the section's entry was made
        self.bytes_before = array("q")
        self.end = end
        self.total_bytes = total_bytes

    def __len__(self) -> int:
        return len(self.bases)

    @property
    def begin(self) -> int:
        """The first offset that a row answers for."""
        return self.bases[0] if self.bases else self.end

    @property
    def newest(self) -> int:
        """The largest timestamp up to the end, in µs."""
        return self.newest_us[-1] if self.newest_us else self.newest_before_us

    def add(self, seq: int, sections_at: int, created_us: int, section: Section) -> None:
        self.newest_us.append(max(self.newest, section.largest_timestamp_us))
        self.bases.append(section.base_offset)
        self.seqs.append(seq)
        self.starts.append(sections_at + section.start)
        self.lengths.append(section.length)
        self.crcs.append(section.crc)
        self.created_us.append(created_us)
        self.bytes_before.append(self.total_bytes)
        self.total_bytes += section.length
        self.end = section.last_offset + 1

    def add_all(self, entries: Sequence[EntryPlace], sections: Sequence[Section]) -> None:
        """As `add` of one after another (entry i has section i), in a fraction of the time."""
        lengths = [section.length for section in sections]
        largest_us = [section.largest_timestamp_us for section in sections]
        bytes_before = list(accumulate(lengths, initial=self.total_bytes))
        self.newest_us.extend(list(accumulate(largest_us, max, initial=self.newest))[1:])
        self.bases.extend([section.base_offset for section in sections])
        seqs, sections_at, created_us = zip(*entries, strict=True)
        self.seqs.extend(seqs)
        self.starts.extend(map(add, sections_at, [section.start for section in sections]))
        self.lengths.extend(lengths)
        self.crcs.extend([section.crc for section in sections])
        self.created_us.extend(created_us)
        self.total_bytes = bytes_before.pop()
        self.bytes_before.extend(bytes_before)
        self.end = sections[-1].last_offset + 1

    def forget(self, seq: int) -> None:
        """Drop the rows of entries up to and with `seq`."""
        self._forget_first(bisect_right(self.seqs, seq))

    def forget_below(self, offset: int) -> None:
        """Drop the rows that lie wholly below `offset`."""
        self._forget_first(len(self) if offset >= self.end else self.row_of(offset))

    def _forget_first(self, count: int) -> None:
        if count > 0:
            self.newest_before_us = self.newest_us[count - 1]
            for column in self._columns():
                del column[:count]

    def row_of(self, offset: int) -> int:
        """The row that answers for `offset`; -1 when it is below the first."""
        return bisect_right(self.bases, offset) - 1

    def row_at_time(self, timestamp_us: int) -> int:
        """The row with the first record of that timestamp or later; len(self) if none has it."""
        return bisect_left(self.newest_us, timestamp_us)

    def end_of(self, row: int) -> int:
        """The offset after those that the row answers for."""
        return self.bases[row + 1] if row + 1 < len(self.bases) else self.end

    def bytes_before_offset(self, offset: int) -> int:
        """About how many stored bytes of the topic lie before `offset`, which a row answers for."""
        row = self.row_of(offset)
        base = self.bases[row]
        read = (offset - base) / (self.end_of(row) - base)
        return self.bytes_before[row] + int(self.lengths[row] * read)

    def pack(self) -> bytes:
        """All rows, column after column."""
        return b"".join(column.tobytes() for column in self._columns())

    @classmethod
    def unpack(cls, packed: bytes, *, end: int, total_bytes: int) -> IndexRows:
        """What `pack` made. Raises ValueError if that cannot be."""
        count, rest = divmod(len(packed), ROW_BYTES)
        if rest or not count:
            raise ValueError(f"{len(packed)} bytes are no rows of an index")
        rows = cls(end=end, total_bytes=total_bytes)
        at = 0
        for column in rows._columns():
            size = count * column.itemsize
            column.frombytes(packed[at : at + size])
            at += size
        return rows

    def _columns(self) -> tuple[array[int], ...]:
        """In the order of `_COLUMNS`."""
        return (
            self.bases,
            self.seqs,
            self.starts,
            self.lengths,
            self.crcs,
            self.newest_us,
            self.created_us,
            self.bytes_before,
        )


Gone: TypeAlias = tuple[int, int]  # a removed row: the id of its object, and its bytes


class StoredRows(IndexRows):
    """The rows of sections in segments and packed objects, all in memory: 60 MB for a terabyte.

    `seqs` are the negated object ids; `bytes_before` counts from the first row. The rows lie below
    all rows of entries. `end` keeps its value when the last row is dropped. Offsets that no fork
    needs may be missing between rows; they are never looked up."""

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
        return self._splice(0, bisect_right(self.ends, offset), ())

    def drop_within(self, begin: int, end: int) -> list[Gone]:
        """Drop the rows that lie wholly within `begin` up to `end` (exclusive), except the last row
        of all, which tells where the rows of entries begin."""
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

"""The records of one answer: batch after batch, until it is full or the range ends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.cutting import cut
from seb_appliance.broker.sections import StoredBatch
from seb_appliance.broker.values import BatchSlice
from seb_appliance.formats.batch import Batch

_NO_END: Final = limits.OFFSET_MAX + 1


class Collected:
    """Slices from `next_offset` on, before `end`. `room_records` and `room_bytes` are what the
    answer may still take; the bytes are those of values, record keys and headers."""

    def __init__(self, next_offset: int, end: int, room_records: int, room_bytes: int) -> None:
        self.slices: list[BatchSlice] = []
        self.count = 0
        self.next_offset = next_offset
        self.room_bytes = room_bytes
        self._end = end
        self._room_records = room_records

    @property
    def end(self) -> int:
        """The offset before which the answer ends; where there are gaps, it may go further."""
        return min(self._end, self.next_offset + self._room_records)

    @property
    def wants_more(self) -> bool:
        """Whether the section with `next_offset` is needed."""
        return self.next_offset < self._end and self._room_records > 0 and self.room_bytes > 0

    def take(self, section: Iterable[StoredBatch], end: int = _NO_END) -> None:
        """What fits of the section that `next_offset` lies in; one record at least, ever. Records
        from `end` on are another topic's."""
        for item in section:
            if item.batch.header.last_offset >= self.next_offset:
                if not self.wants_more or self.next_offset >= end:
                    return
                ours = item if item.batch.header.last_offset < end else cut(item, end)
                if ours is None:
                    self.next_offset = min(end, self._end)
                else:
                    self._take(ours)

    def _take(self, item: StoredBatch) -> None:
        header = item.batch.header
        begin, stop = 0, header.count
        # Most batches are taken whole, at a cost that does not depend on their records.
        if self.next_offset > header.base_offset or header.last_offset >= self._end:
            offsets = item.batch.offsets()
            begin = bisect_left(offsets, self.next_offset)
            stop = bisect_left(offsets, self._end)
        if begin > 0 and self.slices:
            # Batches were merged since the last one was taken. Only the first of an answer may
            # hold records from before it: who reads on begins here.
            self._room_records = 0
            return
        taken = self._fitting(item.batch, begin, stop)
        if taken > begin:
            self.slices.append(BatchSlice(item.batch, begin, taken, item.stored))
            self.count += taken - begin
            self._room_records -= taken - begin
            self.room_bytes -= _bytes_before(item.batch, taken) - _bytes_before(item.batch, begin)
        if taken < stop:
            self.next_offset = int(item.batch.offsets()[taken])
            self._room_records = 0  # the next record does not fit
        else:
            self.next_offset = min(header.last_offset + 1, self._end)  # over a gap, too

    def _fitting(self, batch: Batch, begin: int, stop: int) -> int:
        """The end (exclusive) of the records from `begin` on, before `stop`, that fit."""
        stop = min(stop, begin + self._room_records)
        before = _bytes_before(batch, begin)
        if _bytes_before(batch, stop) - before <= self.room_bytes:
            return stop
        fitting = bisect_right(
            range(begin + 1, stop + 1),
            self.room_bytes,
            key=lambda i: _bytes_before(batch, i) - before,
        )
        return begin + (fitting if self.slices else max(fitting, 1))


def bytes_of(piece: BatchSlice) -> int:
    """Of its records' values, record keys and headers."""
    return _bytes_before(piece.batch, piece.end) - _bytes_before(piece.batch, piece.begin)


def _bytes_before(batch: Batch, i: int) -> int:
    """Bytes of values, record keys and headers of the first `i` records of the batch."""
    columns = batch.columns
    size = columns.values.starts[i]
    if columns.keys is not None:
        size += columns.keys.starts[i]
    if columns.headers is not None:
        size += columns.headers.starts[i]
    return int(size)

"""Reading: find where the offset lies, take the batches, cut slices, wait at the end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from seb_appliance import limits
from seb_appliance.broker.catalog import Catalog, Topic, no_such_topic
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.sections import SectionReader
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.broker.waiting import WaitingReaders
from seb_appliance.clock import Clock
from seb_appliance.errors import OffsetExpiredError, OffsetOutOfRangeError
from seb_appliance.formats.batch import Batch


@dataclass(slots=True)
class _Room:
    """What one answer may still take."""

    records: int
    size_bytes: int

    def take(self, batch: Batch, begin: int, stop: int, *, at_least_one: bool) -> int:
        """The end (exclusive) of the records from `begin` on, before `stop`, that fit; the room
        shrinks by them."""
        before = _bytes_before(batch, begin)
        candidates = range(begin + 1, min(stop, begin + self.records) + 1)
        fitting = bisect_right(
            candidates, self.size_bytes, key=lambda i: _bytes_before(batch, i) - before
        )
        taken = begin + (max(fitting, 1) if at_least_one else fitting)
        self.records -= taken - begin
        self.size_bytes -= _bytes_before(batch, taken) - before
        return taken


class Reads:
    def __init__(
        self,
        catalog: Catalog,
        sections: SectionReader,
        waiting: WaitingReaders,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._catalog = catalog
        self._sections = sections
        self._waiting = waiting
        self._clock = clock
        self._counters = counters

    async def read(self, name: str, request: ReadRequest) -> ReadResult:
        """Raises TopicNotFoundError (also for a topic deleted while we waited),
        OffsetExpiredError, OffsetOutOfRangeError, CorruptObjectError, StoreError."""
        topic = self._catalog.topic(name)
        offset = await self.resolve(topic, request.start)
        until = limits.OFFSET_MAX + 1
        if request.until is not None:
            until = await self.resolve(topic, request.until)
        self._check_range(topic, offset)
        give_up_s = self._clock.monotonic_s() + request.wait_ms / 1000
        while offset == topic.log_end_offset and offset < until:
            left_s = give_up_s - self._clock.monotonic_s()
            if left_s <= 0 or self._waiting.stopping:
                break
            await self._waiting.wait(topic, left_s)
            if topic.deleted:
                raise no_such_topic(name)
        slices, next_offset = await self._collect(topic, offset, until, request)
        self._counters.reads += 1
        self._counters.read_records += sum(piece.end - piece.begin for piece in slices)
        return ReadResult(
            name, topic.topic_id, slices, next_offset, topic.log_start_offset, topic.log_end_offset
        )

    async def resolve(self, topic: Topic, start: From) -> int:
        """The offset that `start` means now. An offset given as such is not checked."""
        if start.offset is not None:
            return start.offset
        if start.last is not None:
            return max(topic.log_start_offset, topic.log_end_offset - start.last)
        if start.timestamp_us is not None:
            return await self._offset_at(topic, start.timestamp_us)
        return topic.log_end_offset if start.latest else topic.log_start_offset

    async def _offset_at(self, topic: Topic, timestamp_us: int) -> int:
        """The first offset whose record has that timestamp or later; the log end when none has."""
        row = topic.index.row_at_time(timestamp_us)
        if row == len(topic.index):
            return topic.log_end_offset
        for stored in await self._sections.read(self._catalog.section_ref(topic, row)):
            if stored.batch.header.largest_timestamp_us < timestamp_us:
                continue
            timestamps = stored.batch.columns.timestamps_us.tolist()
            first = next(i for i, t in enumerate(timestamps) if t >= timestamp_us)
            return max(stored.batch.offsets()[first], topic.log_start_offset)
        raise AssertionError(f"index row {row} promises a timestamp of {timestamp_us}")

    def _check_range(self, topic: Topic, offset: int) -> None:
        if offset < topic.log_start_offset:
            raise OffsetExpiredError(
                f"Offset {offset} is gone; the log of {topic.name!r} starts at "
                f"{topic.log_start_offset}.",
                log_start_offset=topic.log_start_offset,
            )
        if offset > topic.log_end_offset:
            raise OffsetOutOfRangeError(
                f"Offset {offset} is beyond the log end {topic.log_end_offset} of {topic.name!r}.",
                log_end_offset=topic.log_end_offset,
            )

    async def _collect(
        self, topic: Topic, offset: int, until: int, request: ReadRequest
    ) -> tuple[list[BatchSlice], int]:
        """Slices from `offset` on, and the offset after the last of them."""
        room = _Room(request.max_records, request.max_bytes)
        slices: list[BatchSlice] = []
        end = min(until, topic.log_end_offset)
        while offset < end and room.records > 0 and room.size_bytes > 0:
            row = topic.index.row_of(offset)
            ref = self._catalog.section_ref(topic, row)
            for stored in await self._sections.read(ref):
                if stored.batch.header.last_offset < offset:
                    continue
                if offset >= end or room.records <= 0 or room.size_bytes <= 0:
                    break
                offsets = stored.batch.offsets()
                begin, stop = bisect_left(offsets, offset), bisect_left(offsets, end)
                if begin < stop:
                    taken = room.take(stored.batch, begin, stop, at_least_one=not slices)
                    if taken > begin:
                        slices.append(BatchSlice(stored.batch, begin, taken, stored.stored))
                    if taken < stop:
                        return slices, int(offsets[taken])
                offset = min(stored.batch.header.last_offset + 1, end)  # over a gap, too
        return slices, offset


def _bytes_before(batch: Batch, i: int) -> int:
    """Bytes of values, record keys and headers of the first `i` records of the batch."""
    columns = batch.columns
    size = columns.values.starts[i]
    if columns.keys is not None:
        size += columns.keys.starts[i]
    if columns.headers is not None:
        size += columns.headers.starts[i]
    return int(size)

"""Reading: find where the offset lies, take the batches, cut slices, wait at the end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from seb_appliance import limits
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import SectionRef
from seb_appliance.broker.read.sections import (
    DecodedSection,
    SectionIndex,
    SectionReader,
    StoredBatch,
    Stretch,
    cut,
)
from seb_appliance.broker.read.waiting import Waiter, WaitingReaders
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic, check_id, gone
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.clock import Clock
from seb_appliance.errors import CorruptObjectError, OffsetExpiredError, OffsetOutOfRangeError
from seb_appliance.formats.batch import AnyBatch, Undecoded

_NO_LIMIT: Final = limits.OFFSET_MAX + 1


class Collected:
    """The records of one answer, from `next_offset` up to `until`, until the answer is full. The
    bytes of `request.max_bytes` are those of values, record keys and headers."""

    def __init__(self, topic: Topic, next_offset: int, until: int, request: ReadRequest) -> None:
        self.slices: list[BatchSlice] = []
        self.count = 0
        self.next_offset = next_offset
        self.room_bytes = request.max_bytes
        self._end = min(until, topic.log_end_offset)
        self._room_records = request.max_records

    @property
    def end(self) -> int:
        """The answer ends before this offset, or further where there are gaps."""
        return min(self._end, self.next_offset + self._room_records)

    @property
    def wants_more(self) -> bool:
        """Whether the section with `next_offset` is needed."""
        return self.next_offset < self._end and self._room_records > 0 and self.room_bytes > 0

    def take(self, section: Iterable[StoredBatch], end: int = _NO_LIMIT) -> None:
        """Take what fits of the section that holds `next_offset`; the first record always fits.
        Records from `end` on belong to another topic."""
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
        # Most batches are taken whole, at a cost independent of the number of records.
        if self.next_offset > header.base_offset or header.last_offset >= self._end:
            offsets = item.batch.offsets()
            begin = bisect_left(offsets, self.next_offset)
            stop = bisect_left(offsets, self._end)
        if begin > 0 and self.slices:
            # Batches were merged meanwhile. Only the first slice may skip records of its batch; the
            # next read begins here.
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

    def _fitting(self, batch: AnyBatch, begin: int, stop: int) -> int:
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


def _as_stored(request: ReadRequest, ref: SectionRef, stretch: Stretch) -> bool:
    """Whether the section's batches need not be decoded: none is to be cut at a fork offset."""
    return request.as_stored and ref.last_offset < stretch.end


def bytes_of(piece: BatchSlice) -> int:
    """The bytes of values, record keys and headers."""
    return _bytes_before(piece.batch, piece.end) - _bytes_before(piece.batch, piece.begin)


def _bytes_before(batch: AnyBatch, i: int) -> int:
    if isinstance(batch, Undecoded):
        return batch.items_bytes * i // batch.header.count  # as if all were of the same size
    columns = batch.columns
    size = columns.values.starts[i]
    if columns.keys is not None:
        size += columns.keys.starts[i]
    if columns.headers is not None:
        size += columns.headers.starts[i]
    return int(size)


# Bytes ahead of one reader, doubled with each read. The total is bounded, so that fetched sections
# are still in memory when they are needed.
DEPTH_BYTES_FIRST: Final = 256 * 1024
DEPTH_BYTES_MAX: Final = 4 * 1024 * 1024
AHEAD_BYTES_MAX: Final = 8 * 1024 * 1024
SECTIONS_MAX: Final = 64  # ahead of one reader, however small they are
READERS_MAX: Final = 64
FORGOTTEN_AFTER_S: Final = 10.0

_Place: TypeAlias = tuple[int, int]  # topic id, the offset where a reader goes on


class ReadAhead:
    """Fetches the next sections for a reader that goes through old records in order. A reader is
    identified by the offset where its last read stopped."""

    def __init__(
        self, catalog: Catalog, index: SectionIndex, sections: SectionReader, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._sections = sections
        self._clock = clock
        # The depth for each reader, and the time of its last read, oldest first.
        self._readers: OrderedDict[_Place, tuple[int, float]] = OrderedDict()

    def moved(self, topic: Topic, offset: int, next_offset: int, *, as_stored: bool) -> None:
        """A read of old records from `offset` on stopped at `next_offset`."""
        known = self._readers.pop((topic.topic_id, offset), None)
        if next_offset == offset:
            return
        depth_bytes = DEPTH_BYTES_FIRST if known is None else min(2 * known[0], DEPTH_BYTES_MAX)
        now_s = self._clock.monotonic_s()
        while self._readers:
            place, (_, at_s) = next(iter(self._readers.items()))
            if now_s - at_s < FORGOTTEN_AFTER_S and len(self._readers) < READERS_MAX:
                break
            del self._readers[place]
        self._readers[topic.topic_id, next_offset] = (depth_bytes, now_s)
        if known is not None:
            fair_bytes = min(depth_bytes, AHEAD_BYTES_MAX // len(self._readers))
            end = topic.log_end_offset
            self.fetch(topic, next_offset, end, fair_bytes, as_stored=as_stored)

    def fetch(
        self, topic: Topic, offset: int, end: int, size_bytes: int, *, as_stored: bool
    ) -> None:
        """Begin to fetch the sections from `offset` up to `end` that begin within `size_bytes`, as
        far as the index in memory reaches."""
        for _ in range(SECTIONS_MAX):
            if offset >= end or size_bytes <= 0:
                return
            found = self._index.cached(topic, offset)
            if found is None:
                return
            owner, rows, behind = found
            ref = self._catalog.section_ref(owner, rows, rows.row_of(offset))
            if not self._sections.fetch_ahead(ref, as_stored=as_stored):
                return
            size_bytes -= ref.length
            offset = min(ref.last_offset + 1, behind)


class RecordPlace(NamedTuple):
    """`timestamp_us`: of the record at `offset`, if it was looked at."""

    offset: int
    timestamp_us: int | None


def _first_of(batch: AnyBatch, offset: int, timestamp_us: int) -> RecordPlace | None:
    """The first record from `offset` on with that timestamp or a later one."""
    offsets, timestamps = batch.offsets(), batch.columns.timestamps_us.tolist()
    for i in range(bisect_left(offsets, offset), len(timestamps)):
        if timestamps[i] >= timestamp_us:
            return RecordPlace(offsets[i], timestamps[i])
    return None


_NO_END: Final = From(offset=limits.OFFSET_MAX + 1)


class Reads:
    def __init__(
        self,
        catalog: Catalog,
        index: SectionIndex,
        sections: SectionReader,
        waiting: WaitingReaders,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._sections = sections
        self._ahead = ReadAhead(catalog, index, sections, clock)
        self._waiting = waiting
        self._clock = clock
        self._counters = counters

    def read_nowait(
        self, name: str, request: ReadRequest, *, waits: bool = True
    ) -> ReadResult | None:
        """As `read`, if everything is in memory and nothing is to be awaited; else None, and
        nothing was counted. Raises what `read` raises before it waits."""
        topic = self._topic(name, request)
        offset = self._resolved(topic, request.start)
        until = self._resolved(topic, request.until or _NO_END)
        if offset is None or until is None:
            return None
        self._check_range(topic, offset)
        waits = waits and request.wait_ms > 0 and not self._waiting.stopping
        if waits and offset == topic.log_end_offset and offset < until:
            return None
        collected = Collected(topic, offset, until, request)
        old = False  # whether some of it was not in memory, or was fetched ahead
        while collected.wants_more:
            stretch = self._index.cached(topic, collected.next_offset)
            if stretch is None:
                return None
            ref = self._ref(stretch, collected.next_offset)
            end = min(collected.end, stretch.end)
            as_stored = _as_stored(request, ref, stretch)
            section = self._sections.cached(ref, collected.next_offset, end, as_stored=as_stored)
            if section is None:
                return None
            old = self._sections.was_fetched_ahead(ref) or old
            collected.take(section, stretch.end)
        if old:
            self._ahead.moved(topic, offset, collected.next_offset, as_stored=request.as_stored)
        return self._result(topic, collected)

    def wait_at_end(
        self, name: str, offset: int, seconds: float | None, owner: str, woken: Callable[[], None]
    ) -> Waiter | None:
        """Wait as `read` from `offset` would, but call `woken`; None if `read` would not wait.
        `seconds`: as in `WaitingReaders.tell`.
        Raises TopicNotFoundError, ShareExceededError, OverloadedError."""
        topic = self._catalog.topic(name)
        if offset != topic.log_end_offset or self._waiting.stopping:
            return None
        return self._waiting.tell(topic, seconds, owner, woken)

    async def read(self, name: str, request: ReadRequest) -> ReadResult:
        """Raises TopicNotFoundError (also for a topic deleted while we waited),
        TopicReplacedError, OffsetExpiredError, OffsetOutOfRangeError, CorruptObjectError,
        StoreError."""
        topic = self._topic(name, request)
        offset = await self.resolve(topic, request.start)
        until = await self.resolve(topic, request.until or _NO_END)
        self._check_range(topic, offset)
        give_up_s = self._clock.monotonic_s() + request.wait_ms / 1000
        while offset == topic.log_end_offset and offset < until:
            left_s = give_up_s - self._clock.monotonic_s()
            if left_s <= 0 or self._waiting.stopping:
                break
            await self._waiting.wait(topic, left_s, request.owner)
            if topic.deleted:
                raise gone(topic)
        collected = Collected(topic, offset, until, request)
        old = False
        while collected.wants_more:
            if collected.next_offset < topic.log_start_offset and collected.count:
                break  # trimmed meanwhile: the next read gets the error
            self._check_range(topic, collected.next_offset)
            stretch = await self._stretch(topic, collected.next_offset)
            if stretch is None:
                continue
            ref = self._ref(stretch, collected.next_offset)
            end = min(collected.end, stretch.end)
            as_stored = _as_stored(request, ref, stretch)
            section = self._sections.cached(ref, collected.next_offset, end, as_stored=as_stored)
            if section is None:
                # Fetch at once all sections for which this answer has room.
                behind = min(ref.last_offset + 1, stretch.end)
                room_bytes = collected.room_bytes - ref.length
                self._ahead.fetch(
                    topic, behind, collected.end, room_bytes, as_stored=request.as_stored
                )
                section = await self._read(
                    topic, ref, collected.next_offset, end, as_stored=as_stored
                )
                old = True
            if section is not None:
                old = self._sections.was_fetched_ahead(ref) or old
                collected.take(section, stretch.end)
        if old:
            self._ahead.moved(topic, offset, collected.next_offset, as_stored=request.as_stored)
        return self._result(topic, collected)

    def _topic(self, name: str, request: ReadRequest) -> Topic:
        topic = self._catalog.topic(name)
        check_id(name, topic.topic_id, request.topic_id)
        return topic

    async def _stretch(self, topic: Topic, offset: int) -> Stretch | None:
        """As `SectionIndex.rows_of`; None if `offset` was trimmed meanwhile."""
        try:
            return await self._index.rows_of(topic, offset)
        except CorruptObjectError:
            if offset < topic.log_start_offset:
                return None
            raise

    async def _read(
        self, topic: Topic, ref: SectionRef, offset: int, end: int, *, as_stored: bool = False
    ) -> DecodedSection | None:
        """The section's batches from `offset` up to `end`; None if it was replaced meanwhile: look
        again. Raises as `read`."""
        try:
            return await self._sections.read(ref, offset, end, as_stored=as_stored)
        except CorruptObjectError:
            if topic.deleted:
                raise gone(topic) from None
            self._check_range(topic, offset)
            if ref == self._ref(await self._index.rows_of(topic, offset), offset):
                raise
        return None

    async def range_of(self, name: str, start: From, until: From | None) -> tuple[Topic, int, int]:
        """The topic, and the begin and end (exclusive) of a read now. Raises as `read`."""
        topic = self._catalog.topic(name)
        offset = await self.resolve(topic, start)
        end = await self.resolve(topic, until or _NO_END)
        if topic.deleted:
            raise gone(topic)
        self._check_range(topic, offset)
        return topic, offset, max(offset, min(end, topic.log_end_offset))

    async def resolve(self, topic: Topic, start: From) -> int:
        """The offset that `start` means now; a given offset is not checked."""
        resolved = self._resolved(topic, start)
        if resolved is not None:
            return resolved
        assert start.timestamp_us is not None, start
        return (await self._place_of_time(topic, start.timestamp_us)).offset

    async def offset_at(self, name: str, start: From) -> RecordPlace:
        """The offset that `start` means now; for a time also the timestamp of the record there.
        Raises as `read`, except for an offset out of range."""
        topic = self._catalog.topic(name)
        if start.timestamp_us is not None:
            return await self._place_of_time(topic, start.timestamp_us)
        return RecordPlace(await self.resolve(topic, start), None)

    async def newest(self, name: str) -> RecordPlace:
        """The first one of the readable records with the largest timestamp; the log end if there is
        no record. Where the record with the largest timestamp is not readable any more, or not in
        this fork of its topic, it is the last record: the index knows the largest timestamp up to
        an offset, not behind one. Raises as `read`."""
        topic = self._catalog.topic(name)
        found = await self._place_of_time(topic, self._index.largest_timestamp_us(topic))
        if found.timestamp_us is not None:
            return found
        last = max(topic.log_end_offset - 1, topic.log_start_offset)
        return await self._place_behind(topic, last, 0)

    def _resolved(self, topic: Topic, start: From) -> int | None:
        """As `resolve`; None when it takes reading records."""
        if start.offset is not None:
            return start.offset
        if start.last is not None:
            return max(topic.log_start_offset, topic.log_end_offset - start.last)
        if start.timestamp_us is not None:
            return None
        return topic.log_end_offset if start.latest else topic.log_start_offset

    async def _place_of_time(self, topic: Topic, timestamp_us: int) -> RecordPlace:
        """The first record with that timestamp or a later one; the log end when there is none."""
        offset = await self._index.offset_of_time(topic, timestamp_us)
        return await self._place_behind(topic, offset, timestamp_us)

    async def _place_behind(self, topic: Topic, offset: int, timestamp_us: int) -> RecordPlace:
        """As `_place_of_time`, from `offset` on."""
        log_end_offset = topic.log_end_offset
        # Records may be trimmed meanwhile, perhaps all of them.
        while (offset := max(offset, topic.log_start_offset)) < log_end_offset:
            stretch = await self._stretch(topic, offset)
            if stretch is None:
                continue
            ref = self._ref(stretch, offset)
            end = min(log_end_offset, stretch.end)
            for stored in await self._read(topic, ref, offset, end) or ():
                if offset < end and stored.batch.header.largest_timestamp_us >= timestamp_us:
                    found = _first_of(stored.batch, offset, timestamp_us)
                    if found is not None and found.offset < end:
                        return found._replace(offset=max(found.offset, topic.log_start_offset))
                offset = min(stored.batch.header.last_offset + 1, end)
        return RecordPlace(max(log_end_offset, topic.log_start_offset), None)

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

    def _ref(self, stretch: Stretch, offset: int) -> SectionRef:
        """Raises CorruptObjectError when no section holds `offset`: a read would go on for ever."""
        rows = stretch.rows
        row = rows.row_of(offset)
        if rows.end_of(row) <= offset:
            raise CorruptObjectError(f"the index of topic {stretch.owner.name!r} lacks {offset}")
        return self._catalog.section_ref(stretch.owner, rows, row)

    def _result(self, topic: Topic, collected: Collected) -> ReadResult:
        self._counters.reads += 1
        self._counters.read_records += collected.count
        return ReadResult(
            topic.name,
            topic.topic_id,
            collected.slices,
            collected.next_offset,
            topic.log_start_offset,
            topic.log_end_offset,
        )

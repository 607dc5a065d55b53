"""Reading: find where the offset lies, take the batches, cut slices, wait at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.catalog import Catalog
from seb_appliance.broker.collecting import Collected
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.index import SectionIndex, Stretch
from seb_appliance.broker.ports import SectionRef
from seb_appliance.broker.read_ahead import ReadAhead
from seb_appliance.broker.sections import DecodedSection, SectionReader
from seb_appliance.broker.topic import Topic, check_id, gone
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from seb_appliance.broker.waiting import Waiter, WaitingReaders
from seb_appliance.clock import Clock
from seb_appliance.errors import CorruptObjectError, OffsetExpiredError, OffsetOutOfRangeError

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

    def read_at_once(
        self, name: str, request: ReadRequest, *, waits: bool = True
    ) -> ReadResult | None:
        """As `read`, when all that is needed is in memory and there is nothing to wait for (which
        there never is unless it `waits`); else None, and nothing was counted. Raises what `read`
        raises before it waits."""
        topic = self._topic(name, request)
        offset = self._resolved(topic, request.start)
        until = self._resolved(topic, request.until or _NO_END)
        if offset is None or until is None:
            return None
        self._check_range(topic, offset)
        waits = waits and request.wait_ms > 0 and not self._waiting.stopping
        if waits and offset == topic.log_end_offset and offset < until:
            return None
        collected = _collected(topic, offset, until, request)
        old = False
        while collected.wants_more:
            stretch = self._index.at_hand(topic, collected.next_offset)
            if stretch is None:
                return None
            ref = self._ref(stretch, collected.next_offset)
            end = min(collected.end, stretch.end)
            section = self._sections.at_hand(ref, collected.next_offset, end)
            if section is None:
                return None
            old = self._sections.was_fetched_ahead(ref) or old
            collected.take(section, stretch.end)
        return self._result(topic, offset, collected, old=old)

    def wait_at_end(
        self, name: str, offset: int, seconds: float, owner: str, woken: Callable[[], None]
    ) -> Waiter | None:
        """Wait where `read` would wait from `offset` on, but call `woken`. None when it would not.
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
        collected = _collected(topic, offset, until, request)
        old = False
        while collected.wants_more:
            if collected.next_offset < topic.log_start_offset and collected.count:
                break  # trimmed meanwhile: who reads on is told so
            self._check_range(topic, collected.next_offset)
            stretch = await self._stretch(topic, collected.next_offset)
            if stretch is None:
                continue
            ref = self._ref(stretch, collected.next_offset)
            end = min(collected.end, stretch.end)
            section = self._sections.at_hand(ref, collected.next_offset, end)
            if section is None:
                # All that this answer has room for comes at one time.
                behind = min(ref.last_offset + 1, stretch.end)
                room_bytes = collected.room_bytes - ref.length
                self._ahead.fetch(topic, behind, collected.end, room_bytes)
                section = await self._read(topic, ref, collected.next_offset, end)
                old = True
            if section is None:
                continue
            old = self._sections.was_fetched_ahead(ref) or old
            collected.take(section, stretch.end)
        return self._result(topic, offset, collected, old=old)

    def _topic(self, name: str, request: ReadRequest) -> Topic:
        topic = self._catalog.topic(name)
        check_id(name, topic.topic_id, request.topic_id)
        return topic

    async def _stretch(self, topic: Topic, offset: int) -> Stretch | None:
        """Rows that answer for `offset`; None if it was trimmed while they were looked up. Raises
        as `SectionIndex.rows_of`."""
        try:
            return await self._index.rows_of(topic, offset)
        except CorruptObjectError:
            if offset < topic.log_start_offset:
                return None
            raise

    async def _read(
        self, topic: Topic, ref: SectionRef, offset: int, end: int
    ) -> DecodedSection | None:
        """The batches of the section from `offset` up to `end`; None if it was replaced while it
        was being read: look again. Raises as `read`."""
        try:
            return await self._sections.read(ref, offset, end)
        except CorruptObjectError:
            if topic.deleted:
                raise gone(topic) from None
            self._check_range(topic, offset)
            if ref == self._ref(await self._index.rows_of(topic, offset), offset):
                raise
        return None

    async def range_of(self, name: str, start: From, until: From | None) -> tuple[Topic, int, int]:
        """The topic, and the offsets that a read would begin at and end before now. Raises as
        `read`."""
        topic = self._catalog.topic(name)
        offset = await self.resolve(topic, start)
        end = await self.resolve(topic, until or _NO_END)
        if topic.deleted:
            raise gone(topic)
        self._check_range(topic, offset)
        return topic, offset, max(offset, min(end, topic.log_end_offset))

    async def resolve(self, topic: Topic, start: From) -> int:
        """The offset that `start` means now. An offset given as such is not checked."""
        resolved = self._resolved(topic, start)
        if resolved is not None:
            return resolved
        assert start.timestamp_us is not None, start
        return await self._offset_at(topic, start.timestamp_us)

    def _resolved(self, topic: Topic, start: From) -> int | None:
        """As `resolve`; None when records have to be looked at."""
        if start.offset is not None:
            return start.offset
        if start.last is not None:
            return max(topic.log_start_offset, topic.log_end_offset - start.last)
        if start.timestamp_us is not None:
            return None
        return topic.log_end_offset if start.latest else topic.log_start_offset

    async def _offset_at(self, topic: Topic, timestamp_us: int) -> int:
        """The first offset whose record has that timestamp or later; the log end when none has."""
        log_end_offset = topic.log_end_offset
        offset = await self._index.offset_of_time(topic, timestamp_us)
        # Whatever was trimmed while we looked is left out, and that may be all.
        while (offset := max(offset, topic.log_start_offset)) < log_end_offset:
            stretch = await self._stretch(topic, offset)
            if stretch is None:
                continue
            ref = self._ref(stretch, offset)
            end = min(log_end_offset, stretch.end)
            for stored in await self._read(topic, ref, offset, end) or ():
                if offset < end and stored.batch.header.largest_timestamp_us >= timestamp_us:
                    timestamps = stored.batch.columns.timestamps_us.tolist()
                    first = next(i for i, t in enumerate(timestamps) if t >= timestamp_us)
                    found = stored.batch.offsets()[first]
                    if found < end:
                        return max(found, topic.log_start_offset)
                offset = min(stored.batch.header.last_offset + 1, end)
        return max(log_end_offset, topic.log_start_offset)

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
        rows = stretch.rows
        return self._catalog.section_ref(stretch.owner, rows, rows.row_of(offset))

    def _result(self, topic: Topic, offset: int, collected: Collected, *, old: bool) -> ReadResult:
        """`old`: some of it was not in memory when it was asked for, or fetched ahead."""
        if old:
            self._ahead.moved(topic, offset, collected.next_offset)
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


def _collected(topic: Topic, offset: int, until: int, request: ReadRequest) -> Collected:
    """An answer with nothing in it yet."""
    end = min(until, topic.log_end_offset)
    return Collected(offset, end, request.max_records, request.max_bytes)

"""Finding the section that holds an offset or a time, reading it, and decoding its batches.

Index rows of segments and the newest rows of entries are in memory; SQLite holds the older ones in
pages. A lookup takes one page, whatever the length of the log; recently used pages stay in memory.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias, cast

from seb_appliance import limits
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import SectionRef, SectionSource, State
from seb_appliance.broker.topics.topic import IndexRows, Topic, gone, owner_of
from seb_appliance.errors import BadBatchError, CorruptObjectError, TopicNotFoundError
from seb_appliance.formats import batch, batch_v1
from seb_appliance.formats.batch import AnyBatch, Undecoded
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

KEPT_ROWS_MAX: Final = 65_536  # 4 MB


class Stretch(NamedTuple):
    """Rows of `owner`, which is the topic or an ancestor of the fork. They hold for the topic up to
    the offset `end` (exclusive)."""

    owner: Topic
    rows: IndexRows
    end: int


class SectionIndex:
    """The rows of all topics: `Topic.index` and, for what was dropped from it, pages of `state`."""

    def __init__(self, state: State, counters: Counters) -> None:
        self._state = state
        self._counters = counters
        self._kept: OrderedDict[tuple[int, int], IndexRows] = OrderedDict()
        self._begins: dict[int, list[int]] = {}  # of the kept pages, ascending, by topic id
        self._kept_rows = 0

    def cached(self, topic: Topic, offset: int) -> Stretch | None:
        """As `rows_of`, or None if that takes I/O."""
        owner, end = owner_of(topic, offset)
        rows = self._own_cached(owner, offset)
        return None if rows is None else Stretch(owner, rows, end)

    async def rows_of(self, topic: Topic, offset: int) -> Stretch:
        """The rows that cover `offset`, which is within the log. They are valid until the caller
        awaits something. Raises TopicNotFoundError (deleted meanwhile), CorruptObjectError."""
        _require_rows(topic)
        owner, end = owner_of(topic, offset)
        return Stretch(owner, await self.own_rows_of(owner, offset), end)

    async def own_rows_of(self, topic: Topic, offset: int) -> IndexRows:
        """As `rows_of`, of an offset whose rows are the topic's own."""
        rows = self._own_cached(topic, offset)
        if rows is None:
            page = await self._state.index_page(topic.topic_id, offset)
            if page is None and topic.stored.begin <= offset < topic.stored.end:
                return topic.stored  # merged meanwhile
            rows = self._keep(topic, page)
        return rows

    def _own_cached(self, topic: Topic, offset: int) -> IndexRows | None:
        if offset < topic.stored.end:
            return topic.stored
        if offset >= topic.index.begin:
            return topic.index
        begins = self._begins.get(topic.topic_id, ())
        i = bisect_right(begins, offset) - 1
        if i < 0:
            return None
        place = (topic.topic_id, begins[i])
        page = self._kept[place]
        if offset >= page.end:
            return None
        self._kept.move_to_end(place)
        return page

    async def offset_of_time(self, topic: Topic, timestamp_us: int) -> int:
        """The first record of that timestamp or later is at this offset or behind it; the log end
        if there is none. Raises as `rows_of`."""
        offset = topic.log_start_offset
        while True:
            owner, end = owner_of(topic, offset)
            found = max(offset, await self._own_offset_of_time(owner, timestamp_us))
            if owner is topic or found < end:
                return found
            offset = end

    async def _own_offset_of_time(self, topic: Topic, timestamp_us: int) -> int:
        stored, newest, end = topic.stored, topic.index, topic.log_end_offset
        begin = -1
        while begin != topic.entries_begin:  # else pages may be gone, and a later one was found
            if len(stored) and stored.newest >= timestamp_us:
                return stored.bases[stored.row_at_time(timestamp_us)]
            begin, rows = topic.entries_begin, newest
            if newest.begin > begin and newest.newest_before_us >= timestamp_us:
                page = await self._state.index_page_at(topic.topic_id, timestamp_us)
                rows = self._keep(topic, page)
        row = rows.row_at_time(timestamp_us)
        return max(rows.bases[row] if row < len(rows) else min(rows.end, end), begin)

    def largest_timestamp_us(self, topic: Topic) -> int:
        """No record of the topic has a larger timestamp. One had this, which may be trimmed, may be
        compacted away, or may lie in the parent behind the fork offset."""
        largest_us = max(topic.stored.newest, topic.index.newest)
        if topic.parent is None:
            return largest_us
        return max(largest_us, self.largest_timestamp_us(topic.parent))

    async def bytes_from(self, topic: Topic, offset: int) -> int:
        """About how many bytes are stored from `offset` on, including what a fork shares. Raises
        as `rows_of`."""
        _require_rows(topic)
        size_bytes = 0
        while True:
            owner, end = owner_of(topic, offset)
            size_bytes += await self._own_bytes_from(owner, offset)
            if owner is topic:
                return size_bytes
            size_bytes -= await self._own_bytes_from(owner, end)
            offset = end

    async def _own_bytes_from(self, topic: Topic, offset: int) -> int:
        if offset >= topic.log_end_offset:
            return 0
        if offset < topic.stored.end:
            return topic.size_bytes - topic.stored.bytes_before_offset(offset)
        rows = await self.own_rows_of(topic, offset)
        return topic.index.total_bytes - rows.bytes_before_offset(offset)

    async def measure(self, topic: Topic) -> None:
        """Update `topic.bytes_gone` from the index pages, for rows that are not in memory."""
        while (begin := topic.entries_begin) < topic.log_end_offset and not topic.purged:
            try:
                rows = await self.own_rows_of(topic, begin)
            except (CorruptObjectError, TopicNotFoundError):
                if begin == topic.entries_begin and not topic.purged:
                    raise
                continue  # trimmed or deleted meanwhile
            if begin == topic.entries_begin:
                topic.bytes_gone = rows.bytes_before[rows.row_of(begin)]
                topic.is_measured = True
                return

    def _keep(self, topic: Topic, page: IndexRows | None) -> IndexRows:
        self._counters.index_lookups += 1
        _require_rows(topic)
        if page is None:
            raise CorruptObjectError(f"the local index of topic {topic.name!r} has a hole")
        place = (topic.topic_id, page.begin)
        if place not in self._kept:
            self._kept[place] = page
            insort(self._begins.setdefault(topic.topic_id, []), page.begin)
            self._kept_rows += len(page)
            while self._kept_rows > KEPT_ROWS_MAX and len(self._kept) > 1:
                (topic_id, begin), oldest = self._kept.popitem(last=False)
                self._kept_rows -= len(oldest)
                begins = self._begins[topic_id]
                del begins[bisect_left(begins, begin)]
                if not begins:
                    del self._begins[topic_id]
        return page


def _require_rows(topic: Topic) -> None:
    if topic.purged:
        raise gone(topic)


KEPT_BYTES: Final = 16 * limits.MIB
FETCHED_AHEAD_BYTES_MAX: Final = 8 * limits.MIB  # under way at one time
FETCHED_AHEAD_MAX: Final = 16
_AT_ONCE_BYTES: Final = 256 * limits.KIB  # are decoded without a thread: a third of a millisecond


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch, decoded unless it was asked for as it is stored, and its bytes in the bucket."""

    batch: AnyBatch
    stored: memoryview


# Neighbouring batches of one section, in offset order.
DecodedSection: TypeAlias = list[StoredBatch]

_Place: TypeAlias = tuple[int, int]


class _Section:
    """The checked bytes of a section. A batch is decoded when it is needed first."""

    __slots__ = ("_data", "_decoded", "_headers", "_places", "_ref", "whole")

    def __init__(self, data: bytes, ref: SectionRef) -> None:
        """Raises CorruptObjectError when the batches do not cover exactly the section's offsets."""
        self._data = data
        self._ref = ref
        try:
            found = list(batch.walk(data))
        except BadBatchError as error:
            raise _corrupt(ref, error.detail) from error
        next_offset = ref.base_offset
        for _, header in found:
            if (base := header.base_offset) != next_offset:
                raise _corrupt(ref, f"a batch begins at {base}, not at {next_offset}")
            next_offset = header.last_offset + 1
        if next_offset != ref.last_offset + 1:
            raise _corrupt(ref, f"the batches end at {next_offset}, not at {ref.last_offset + 1}")
        self._places = [at for at, _ in found]
        self._headers = [header for _, header in found]
        self._decoded: list[StoredBatch | None] = [None] * len(self._headers)
        self.whole: DecodedSection | None = None  # once all of it is decoded

    @property
    def memory_bytes(self) -> int:
        """The stored bytes, and the bodies that are inflated."""
        return len(self._data) + sum(
            header.inflated_bytes
            for header, item in zip(self._headers, self._decoded, strict=True)
            if item is not None and header.flags & batch.ZSTD
        )

    def missing_bytes(self, begin: int, end: int) -> int:
        """Of the batches within `begin` up to `end` that are not decoded yet."""
        return sum(self._headers[i].inflated_bytes for i in self._missing(begin, end))

    def as_stored(self, begin: int, end: int) -> DecodedSection | None:
        """As `batches`, of which none is decoded for this; None if that is not possible. Raises
        CorruptObjectError."""
        found: DecodedSection = []
        for i in self._range(begin, end):
            header, item = self._headers[i], self._decoded[i]
            if item is None:
                if header.flags & batch.EXPLICIT_OFFSETS:
                    return None
                stored = self._bytes_of(i)
                try:
                    batch.stored_body(stored, 0, header)
                except BadBatchError as error:
                    raise _corrupt(self._ref, error.detail) from error
                item = StoredBatch(Undecoded(header, stored), stored)
            found.append(item)
        return found

    def _bytes_of(self, i: int) -> memoryview:
        at = self._places[i]
        return memoryview(self._data)[at : at + self._headers[i].total_bytes]

    def batches(self, begin: int, end: int) -> DecodedSection:
        """Those with offsets from `begin` up to `end`. Raises CorruptObjectError. Any thread may
        call this: at worst a batch is decoded twice."""
        for i in self._missing(begin, end):
            stored = self._bytes_of(i)
            try:
                self._decoded[i] = StoredBatch(batch.decode(stored, 0, self._headers[i]), stored)
            except BadBatchError as error:
                raise _corrupt(self._ref, error.detail) from error
        batches = [self._decoded[i] for i in self._range(begin, end)]
        if len(batches) == len(self._decoded):
            self.whole = cast("DecodedSection", batches)
        return cast("DecodedSection", batches)

    def _range(self, begin: int, end: int) -> range:
        first = bisect_left(self._headers, begin, key=lambda header: header.last_offset)
        behind = bisect_left(self._headers, end, key=lambda header: header.base_offset)
        return range(first, behind)

    def _missing(self, begin: int, end: int) -> list[int]:
        return [i for i in self._range(begin, end) if self._decoded[i] is None]


class SectionReader:
    """Reads a section once for all concurrent readers, and keeps the last 16 MiB of checked
    sections with their decoded batches."""

    def __init__(self, source: SectionSource, executor: Executor, counters: Counters) -> None:
        self._source = source
        self._counters = counters
        self._executor = executor
        self._kept: OrderedDict[_Place, tuple[_Section, int]] = OrderedDict()
        self._kept_bytes = 0
        self._under_way: dict[_Place, asyncio.Task[_Section]] = {}
        # Sections fetched ahead: bytes under way, and those that nobody has read yet.
        self._coming: dict[_Place, int] = {}
        self._unread: set[_Place] = set()

    def cached(
        self, ref: SectionRef, begin: int, end: int, *, as_stored: bool = False
    ) -> DecodedSection | None:
        """As `read`, or None if that takes I/O or long work. Raises CorruptObjectError."""
        place = (ref.entry.seq, ref.at)
        kept = self._kept.get(place)
        if kept is not None:
            section = kept[0]
            self._kept.move_to_end(place)
            if section.whole is not None:
                return section.whole
        else:
            data = self._source.cached(ref) if ref.length <= limits.SEGMENT_SECTION_BYTES else None
            if data is None:
                return None
            section = _Section(data, ref)
        batches = section.as_stored(begin, end) if as_stored else None
        if batches is None and section.missing_bytes(begin, end) <= _AT_ONCE_BYTES:
            batches = section.batches(begin, end)
        self._keep(place, section)
        return batches

    async def read(
        self, ref: SectionRef, begin: int, end: int, *, as_stored: bool = False
    ) -> DecodedSection:
        """At least the section's batches with offsets from `begin` up to `end`. `as_stored`: not
        decoded, if possible. Raises CorruptObjectError, StoreError."""
        batches = self.cached(ref, begin, end, as_stored=as_stored)
        if batches is not None:
            return batches
        place = (ref.entry.seq, ref.at)
        kept = self._kept.get(place)
        if kept is not None:
            section = kept[0]
        else:
            needed = (0, 0) if as_stored else (begin, end)
            task = self._under_way.get(place) or self._begin(ref, *needed)
            section = await asyncio.shield(task)  # a reader that leaves must not end it for others
        if as_stored and (batches := section.as_stored(begin, end)) is not None:
            self._keep(place, section)
            return batches
        return await self._decoded(place, section, begin, end)

    def fetch_ahead(self, ref: SectionRef, *, as_stored: bool = False) -> bool:
        """Begin to fetch a section that is needed soon, unless it is in memory or under way. False
        when enough are under way."""
        place = (ref.entry.seq, ref.at)
        if place in self._kept or place in self._under_way:
            return True
        coming_bytes = sum(self._coming.values()) + ref.length
        if len(self._coming) >= FETCHED_AHEAD_MAX or coming_bytes > FETCHED_AHEAD_BYTES_MAX:
            return False

        def arrived(task: asyncio.Task[_Section]) -> None:
            del self._coming[place]
            failed = task.cancelled() or task.exception() is not None  # a reader gets the error
            if not failed and place in self._kept:
                self._unread.add(place)

        self._coming[place] = ref.length
        needed = (0, 0) if as_stored else (ref.base_offset, ref.last_offset + 1)
        self._begin(ref, *needed).add_done_callback(arrived)
        self._counters.fetched_ahead += 1
        return True

    def was_fetched_ahead(self, ref: SectionRef) -> bool:
        """Whether the section was fetched ahead and nobody has read it before."""
        place = (ref.entry.seq, ref.at)
        if place not in self._unread:
            return False
        self._unread.discard(place)
        return True

    def _begin(self, ref: SectionRef, begin: int, end: int) -> asyncio.Task[_Section]:
        """Fetch the section, and decode its batches with offsets from `begin` up to `end`."""
        place = (ref.entry.seq, ref.at)

        def ended(task: asyncio.Task[_Section]) -> None:
            self._under_way.pop(place, None)
            if not task.cancelled():
                task.exception()  # nobody retrieves it if the readers have left

        task = asyncio.create_task(self._fetch(ref, begin, end))
        self._under_way[place] = task
        task.add_done_callback(ended)
        return task

    async def _fetch(self, ref: SectionRef, begin: int, end: int) -> _Section:
        data = await self._source.read(ref)
        if batch_v1.is_version_1(data):  # a file of the Go broker
            loop = asyncio.get_running_loop()
            convert = partial(batch_v1.as_version_2, data, ref.base_offset)
            try:
                data = await loop.run_in_executor(self._executor, convert)
            except BadBatchError as error:
                raise _corrupt(ref, error.detail) from error
        section = _Section(data, ref)
        await self._decoded((ref.entry.seq, ref.at), section, begin, end)
        return section

    async def _decoded(
        self, place: _Place, section: _Section, begin: int, end: int
    ) -> DecodedSection:
        if section.missing_bytes(begin, end) > _AT_ONCE_BYTES:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, section.batches, begin, end)
        batches = section.batches(begin, end)
        self._keep(place, section)
        return batches

    def _keep(self, place: _Place, section: _Section) -> None:
        """Keep the section, or update its size."""
        kept, before_bytes = self._kept.get(place, (section, 0))
        if kept is not section:  # another copy arrived first
            return
        size_bytes = section.memory_bytes
        self._kept[place] = (section, size_bytes)
        self._kept_bytes += size_bytes - before_bytes
        if size_bytes > KEPT_BYTES:  # it would evict all others before itself
            self._kept.move_to_end(place, last=False)
        while self._kept_bytes > KEPT_BYTES:
            oldest, (_, oldest_bytes) = self._kept.popitem(last=False)
            self._kept_bytes -= oldest_bytes
            self._unread.discard(oldest)


def _corrupt(ref: SectionRef, why: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"offsets {ref.base_offset} to {ref.last_offset} cannot be read: {why}",
        offset=ref.base_offset,
        until=ref.last_offset + 1,
    )


def cut(item: StoredBatch, end: int) -> StoredBatch | None:
    """The batch's records below the fork offset `end`, as a batch that ends there; None when there
    is none. A reader of the fork must not get a byte of the parent's later records."""
    header, columns = item.batch.header, item.batch.columns
    offsets = item.batch.offsets()
    count = bisect_left(offsets, end)
    if count == 0:
        return None
    left = Columns(
        int64s(columns.timestamps_us[:count]),
        BinaryColumn.of(columns.values.slice(0, count)),
        _first(columns.keys, count),
        _first(columns.headers, count),
        None if columns.offsets is None else int64s(columns.offsets[:count]),
    )
    stored = batch.encode(
        left, base_offset=header.base_offset, last_offset=end - 1, created_us=header.created_us
    )
    return StoredBatch(batch.decode(stored), memoryview(stored))


def _first(column: BinaryColumn | None, count: int) -> BinaryColumn | None:
    return None if column is None else BinaryColumn.of(column.slice(0, count))

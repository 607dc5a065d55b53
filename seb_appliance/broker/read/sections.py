"""Finding the section that holds an offset or a time, reading it, and decoding its batches.

Index rows of segments and the newest rows of entries are in memory; SQLite holds the older ones in
pages. A lookup takes one page, whatever the length of the log; recently used pages stay in memory.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, cast

from seb_appliance import limits
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import SectionRef, SectionSource, State
from seb_appliance.broker.topics.topic import IndexRows, Topic, gone, owner_of
from seb_appliance.errors import BadBatchError, CorruptObjectError, TopicNotFoundError
from seb_appliance.formats import batch, batch_v1
from seb_appliance.formats.batch import Batch, BatchHeader
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

KEPT_ROWS_MAX: Final = 65_536  # 4 MB


class Stretch(NamedTuple):
    """Rows of `owner`, the topic itself or one that it was forked from, which answer for the topic
    up to the offset `end` (exclusive), and for others perhaps further."""

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
        """As `rows_of`, if that takes no I/O."""
        owner, end = owner_of(topic, offset)
        rows = self._own_cached(owner, offset)
        return None if rows is None else Stretch(owner, rows, end)

    async def rows_of(self, topic: Topic, offset: int) -> Stretch:
        """Rows, one of which answers for `offset`: from the log start up to before the log end.
        They are good until the caller waits for something. Raises TopicNotFoundError when the
        topic was deleted meanwhile, CorruptObjectError."""
        _require_rows(topic)
        owner, end = owner_of(topic, offset)
        return Stretch(owner, await self.own_rows_of(owner, offset), end)

    async def own_rows_of(self, topic: Topic, offset: int) -> IndexRows:
        """As `rows_of`, of an offset that no other topic's rows answer for."""
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
        """An offset, perhaps before the first record of that timestamp or later, and as near as the
        rows tell (what is gone may have had a larger one); the log end if no record has. Raises
        as `rows_of`."""
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

    async def bytes_from(self, topic: Topic, offset: int) -> int:
        """About how many bytes are stored from `offset` on, which is in the log, what a fork shares
        with others included. Raises as `rows_of`."""
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
    """A deleted topic has none, in whichever arrays they were. Raises TopicNotFoundError."""
    if topic.purged:
        raise gone(topic)


KEPT_BYTES: Final = 16 * limits.MIB
FETCHED_AHEAD_BYTES_MAX: Final = 8 * limits.MIB  # under way at one time
FETCHED_AHEAD_MAX: Final = 16
_AT_ONCE_BYTES: Final = 256 * limits.KIB  # are decoded without a thread: a third of a millisecond


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A decoded batch and its bytes as they lie in the bucket."""

    batch: Batch
    stored: memoryview


# Neighbouring batches of one section, in offset order.
DecodedSection: TypeAlias = "list[StoredBatch]"

_Place: TypeAlias = tuple[int, int]


class _Section:
    """The checked bytes of a section. Its batches are decoded when they are asked for: for one
    record of a mebibyte, one of them is."""

    __slots__ = ("_data", "_decoded", "_headers", "_places", "_ref", "whole")

    def __init__(self, data: bytes, ref: SectionRef) -> None:
        """Raises CorruptObjectError when the batches do not answer for the section's offsets."""
        self._data = data
        self._ref = ref
        self._places, self._headers = _walk(data, ref)
        self._decoded: list[StoredBatch | None] = [None] * len(self._headers)
        self.whole: DecodedSection | None = None  # once all of it is decoded

    @property
    def memory_bytes(self) -> int:
        """What it takes: the stored bytes, and the bodies that are inflated."""
        return len(self._data) + sum(
            _inflated_bytes(header)
            for header, item in zip(self._headers, self._decoded, strict=True)
            if item is not None
        )

    def missing_bytes(self, begin: int, end: int) -> int:
        """Of the batches with offsets from `begin` up to `end` that are not decoded yet."""
        return sum(self._headers[i].inflated_bytes for i in self._missing(begin, end))

    def batches(self, begin: int, end: int) -> DecodedSection:
        """Those with offsets from `begin` up to `end`. Raises CorruptObjectError. In any thread:
        at worst a batch is decoded twice."""
        for i in self._missing(begin, end):
            self._decoded[i] = self._decode(i)
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

    def _decode(self, i: int) -> StoredBatch:
        at, header = self._places[i], self._headers[i]
        stored = memoryview(self._data)[at : at + header.total_bytes]
        try:
            return StoredBatch(batch.decode(self._data, at, header), stored)
        except BadBatchError as error:
            raise _corrupt(self._ref, error.detail) from error


class SectionReader:
    """Reads a section once for all who ask at the same time, and keeps the last 16 MiB with what
    was decoded of them: what lies here was checked, and is handed out as it is."""

    def __init__(self, source: SectionSource, executor: Executor, counters: Counters) -> None:
        self._source = source
        self._counters = counters
        self._executor = executor
        self._kept: OrderedDict[_Place, tuple[_Section, int]] = OrderedDict()
        self._kept_bytes = 0
        self._under_way: dict[_Place, asyncio.Task[_Section]] = {}
        # What is fetched before it was asked for: bytes on their way, and what nobody read yet.
        self._coming: dict[_Place, int] = {}
        self._unread: set[_Place] = set()

    def cached(self, ref: SectionRef, begin: int, end: int) -> DecodedSection | None:
        """As `read`, if that takes no I/O and no long work; else None. Raises
        CorruptObjectError."""
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
        if section.missing_bytes(begin, end) > _AT_ONCE_BYTES:
            self._keep(place, section)
            return None
        batches = section.batches(begin, end)
        self._keep(place, section)
        return batches

    async def read(self, ref: SectionRef, begin: int, end: int) -> DecodedSection:
        """The section's batches with offsets from `begin` up to `end`, perhaps others too. Raises
        CorruptObjectError, StoreError."""
        batches = self.cached(ref, begin, end)
        if batches is not None:
            return batches
        place = (ref.entry.seq, ref.at)
        kept = self._kept.get(place)
        if kept is not None:
            return await self._decoded(place, kept[0], begin, end)
        task = self._under_way.get(place) or self._begin(ref, begin, end)
        # A reader that leaves must not end it for the others.
        return await self._decoded(place, await asyncio.shield(task), begin, end)

    def fetch_ahead(self, ref: SectionRef) -> bool:
        """Begin to fetch a section that will be asked for soon, unless it is here or coming. False
        when enough are coming."""
        place = (ref.entry.seq, ref.at)
        if place in self._kept or place in self._under_way:
            return True
        coming_bytes = sum(self._coming.values()) + ref.length
        if len(self._coming) >= FETCHED_AHEAD_MAX or coming_bytes > FETCHED_AHEAD_BYTES_MAX:
            return False

        def arrived(task: asyncio.Task[_Section]) -> None:
            del self._coming[place]
            failed = task.cancelled() or task.exception() is not None  # its reader will hear
            if not failed and place in self._kept:
                self._unread.add(place)

        self._coming[place] = ref.length
        begun = self._begin(ref, ref.base_offset, ref.last_offset + 1)
        begun.add_done_callback(arrived)
        self._counters.fetched_ahead += 1
        return True

    def was_fetched_ahead(self, ref: SectionRef) -> bool:
        """Whether the section came before it was asked for; told to the first who asks."""
        if not self._unread:
            return False
        place = (ref.entry.seq, ref.at)
        found = place in self._unread
        self._unread.discard(place)
        return found

    def _begin(self, ref: SectionRef, begin: int, end: int) -> asyncio.Task[_Section]:
        place = (ref.entry.seq, ref.at)
        task = asyncio.create_task(self._fetch(ref, begin, end))
        self._under_way[place] = task
        task.add_done_callback(lambda _: self._under_way.pop(place, None))
        return task

    async def _fetch(self, ref: SectionRef, begin: int, end: int) -> _Section:
        """The section, with the batches from `begin` up to `end` decoded."""
        data = await self._source.read(ref)
        if batch_v1.is_version_1(data):
            loop = asyncio.get_running_loop()
            data = await loop.run_in_executor(self._executor, _as_version_2, data, ref)
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
        """Keep it, or note how much it takes now."""
        kept, before_bytes = self._kept.get(place, (section, 0))
        if kept is not section:  # another copy has come before
            return
        size_bytes = section.memory_bytes
        self._kept[place] = (section, size_bytes)
        self._kept_bytes += size_bytes - before_bytes
        if size_bytes > KEPT_BYTES:  # it would drive out all others, and go then
            self._kept.move_to_end(place, last=False)
        while self._kept_bytes > KEPT_BYTES:
            oldest, (_, oldest_bytes) = self._kept.popitem(last=False)
            self._kept_bytes -= oldest_bytes
            self._unread.discard(oldest)


def _as_version_2(data: bytes, ref: SectionRef) -> bytes:
    """A file of the Go broker. Raises CorruptObjectError."""
    try:
        return batch_v1.as_version_2(data, ref.base_offset)
    except BadBatchError as error:
        raise _corrupt(ref, error.detail) from error


def _walk(data: bytes, ref: SectionRef) -> tuple[Sequence[int], list[BatchHeader]]:
    """Where the section's batches begin, and their checked headers."""
    try:
        found = list(batch.walk(data))
    except BadBatchError as error:
        raise _corrupt(ref, error.detail) from error
    next_offset = ref.base_offset
    for _, header in found:
        if header.base_offset != next_offset:
            raise _corrupt(ref, f"a batch begins at {header.base_offset}, not at {next_offset}")
        next_offset = header.last_offset + 1
    if next_offset != ref.last_offset + 1:
        raise _corrupt(ref, f"the batches end at {next_offset}, not at {ref.last_offset + 1}")
    return [at for at, _ in found], [header for _, header in found]


def _inflated_bytes(header: BatchHeader) -> int:
    """What it takes beside its stored bytes once it is decoded."""
    return header.inflated_bytes if header.flags & batch.ZSTD else 0


def _corrupt(ref: SectionRef, why: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"offsets {ref.base_offset} to {ref.last_offset} cannot be read: {why}",
        offset=ref.base_offset,
        until=ref.last_offset + 1,
    )


# A batch that reaches beyond a fork offset, without the records that lie there.
#
# They are the parent's alone: whoever reads the fork gets no byte of them, whatever the format.


def cut(item: StoredBatch, end: int) -> StoredBatch | None:
    """The batch's records below the offset `end`, as a batch that answers for the offsets up to
    there; None when there is none."""
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

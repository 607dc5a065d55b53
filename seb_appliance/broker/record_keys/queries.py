"""Queries by record key: list of keys, newest record, history, view of all newest records.

The key index gives offsets; the records are read from the log. If the log contradicts the index,
the query fails and the index is rebuilt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from seb_appliance import limits
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.read.reads import Reads, bytes_of
from seb_appliance.broker.record_keys.indexing import (
    KeyIndex,
    KeyIndexing,
    KeyOffsets,
    KeyRow,
    KeyRows,
    KeyViews,
    is_indexed,
)
from seb_appliance.broker.shares import OPERATOR, AllShares
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic, gone
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    BadParameterError,
    ConfigurationError,
    CorruptObjectError,
    KeyIndexOffError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    OverloadedError,
    RecordKeyNotFoundError,
)
from seb_appliance.tasks import Background, Supervisor

_AT_ONCE: Final = 1_000  # records that one read looks through


def key_of(piece: BatchSlice, i: int) -> bytes | None:
    """The record key of record `i` of the batch."""
    keys = piece.batch.columns.keys
    return None if keys is None else keys.get(i)


async def pick(
    reads: Reads, topic: Topic, offsets: Sequence[int], max_bytes: int = limits.FETCH_BYTES_MAX
) -> tuple[list[BatchSlice], int]:
    """The records at these ascending offsets that still exist and fit `max_bytes`, at least one;
    and how many of the offsets were handled. Raises TopicNotFoundError, CorruptObjectError,
    StoreError."""
    picked: list[BatchSlice] = []
    at, size_bytes = 0, 0
    while at < len(offsets):
        until = min(offsets[-1] + 1, topic.log_end_offset)
        request = ReadRequest(From(offset=offsets[at]), From(offset=until), _AT_ONCE)
        try:
            result = await reads.read(topic.name, request)
        except OffsetExpiredError as error:
            at = bisect_left(offsets, int(str(error.data["log_start_offset"])))
            continue
        except OffsetOutOfRangeError:
            if topic.deleted:  # and another one has its name
                raise gone(topic) from None
            raise
        if result.topic_id != topic.topic_id:
            raise gone(topic)
        behind = bisect_left(offsets, result.next_offset)
        for piece in _chosen(result, offsets[at:behind]):
            size_bytes += bytes_of(piece)
            if picked and size_bytes > max_bytes:
                return picked, bisect_left(offsets, piece.batch.offsets()[piece.begin])
            picked.append(piece)
        assert behind > at, (offsets[at], result.next_offset)
        at = behind
    return picked, len(offsets)


def _chosen(result: ReadResult, offsets: Sequence[int]) -> Iterator[BatchSlice]:
    """The records of a result that lie at these offsets, neighbours in one slice."""
    for piece in result.slices:
        there, begin, end = piece.batch.offsets(), piece.begin, piece.end
        first = bisect_left(offsets, there[begin])
        behind = bisect_right(offsets, there[end - 1])
        places = [
            (bisect_left(there, offset, begin, end), offset) for offset in offsets[first:behind]
        ]
        yield from runs(piece, [i for i, offset in places if there[i] == offset])


def runs(piece: BatchSlice, chosen: Sequence[int]) -> Iterator[BatchSlice]:
    """The records at these ascending places of the batch, neighbours in one slice."""
    begin = 0
    for end in range(1, len(chosen) + 1):
        if end == len(chosen) or chosen[end] != chosen[end - 1] + 1:
            yield BatchSlice(piece.batch, chosen[begin], chosen[end - 1] + 1, piece.stored)
            begin = end


async def read_key(reads: Reads, name: str, request: ReadRequest, key: bytes) -> ReadResult:
    """As `Reads.read`, but only records with this record key. It looks through at most 16 MiB, and
    waits once at the log end: it may find none, although `next_offset` has moved on."""
    found: list[BatchSlice] = []
    room_records, room_bytes, looked_at = request.max_records, request.max_bytes, 0
    step = replace(request, max_records=limits.FETCH_RECORDS_MAX, max_bytes=limits.MIB)
    while True:
        result = await reads.read(name, step)
        for piece in result.slices:
            looked_at += len(piece.stored)
            keys = piece.batch.columns.keys
            listed = () if keys is None else keys.slice(piece.begin, piece.end)
            places = [i for i, found_key in enumerate(listed, piece.begin) if found_key == key]
            for n, i in enumerate(places):
                size_bytes = bytes_of(BatchSlice(piece.batch, i, i + 1, piece.stored))
                if room_records <= 0 or (size_bytes > room_bytes and (found or n)):
                    found += runs(piece, places[:n])
                    return replace(result, slices=found, next_offset=int(piece.batch.offsets()[i]))
                room_records -= 1
                room_bytes -= size_bytes
            found += runs(piece, places)
        if not result.slices or looked_at >= limits.KEY_FILTER_BYTES_MAX:
            return replace(result, slices=found)
        step = replace(step, start=From(offset=result.next_offset), wait_ms=0)


Rows = TypeVar("Rows", KeyRows, KeyOffsets)


@dataclass(frozen=True, slots=True)
class KeyPage:
    """The next page begins behind the record key `next_after`; None at the end."""

    topic_id: int
    rows: Sequence[KeyRow]
    next_after: bytes | None
    indexed_offset: int


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """Records of one record key, in offset order. The next page of its history begins below
    `next_before`; None at the end."""

    result: ReadResult
    next_before: int | None
    indexed_offset: int


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """Where the next page of a view begins; the view is of a topic as of an offset."""

    topic_id: int
    as_of: int
    begin: int


@dataclass(frozen=True, slots=True)
class ViewPage:
    """The newest records as of `result.next_offset`, from which a consumer can read on after the
    last page (`next_place` is None)."""

    result: ReadResult
    next_place: ViewPlace | None


class RecordKeys:
    """`reads` count apart from those of consumers. `indexing` is public for its figures. `asked` is
    called before each query."""

    def __init__(
        self,
        catalog: Catalog,
        reads: Reads,
        index: KeyIndex,
        counters: Counters,
        clock: Clock,
        shares: AllShares,
    ) -> None:
        self._catalog = catalog
        self._reads = reads
        self._index = index
        self._counters = counters
        self._views = KeyViews(clock, shares)
        self.indexing = KeyIndexing(catalog, reads, index, self._views, clock)
        self.asked: Callable[[], None] = lambda: None
        self._task: Background | None = None

    def start(self, supervisor: Supervisor) -> None:
        self._task = supervisor.keep("key-index", self.indexing.run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.close()

    @property
    def size_bytes(self) -> int:
        """About what the index takes on disk."""
        return self._index.size_bytes

    async def keys(
        self, name: str, prefix: bytes, after: bytes | None, most: int, *, fresh: bool
    ) -> KeyPage:
        """Record keys whose newest record is not a tombstone, in byte order. Raises, as all below,
        TopicNotFoundError, KeyIndexOffError, OverloadedError (not `fresh` in time, or the index is
        not readable now)."""
        topic, reached = await self._topic(name, fresh=fresh)
        ask = partial(self._index.page, topic.topic_id, prefix, after, most + 1)
        found, indexed_offset = await self._ask(topic, ask, reached)
        rows, next_after = found.rows, None
        if len(rows) > most or sum(len(row.key) for row in rows) > limits.KEYS_PAGE_BYTES:
            rows = rows[:-1]  # there is one more
            next_after = rows[-1].key
        return KeyPage(topic.topic_id, rows, next_after, indexed_offset)

    async def latest(self, name: str, key: bytes, *, fresh: bool) -> KeyedRecords:
        """The newest record of a record key. Raises RecordKeyNotFoundError (also for a tombstone),
        CorruptObjectError, StoreError."""
        topic, reached = await self._topic(name, fresh=fresh)
        for attempt in range(2):
            ask = partial(self._index.latest, topic.topic_id, key)
            found, indexed_offset = await self._ask(topic, ask, reached)
            if not found.rows:
                break
            slices, _ = await pick(self._reads, topic, [found.rows[0].offset])
            if slices and key_of(slices[0], slices[0].begin) == key:
                return KeyedRecords(self._result(topic, slices), None, indexed_offset)
            if found.rows[0].offset < topic.log_start_offset:
                break
            # Compaction replaces a record by a newer one: the index is behind, or damaged.
            if attempt:
                raise self._contradicted()
            await self.indexing.caught_up(topic, topic.log_end_offset)
        raise RecordKeyNotFoundError(
            f"Topic {name!r} has no live record with this record key below offset "
            f"{indexed_offset}. Later records are not indexed yet.",
            indexed_offset=indexed_offset,
        )

    async def history(
        self, name: str, key: bytes, before: int | None, most: int, *, fresh: bool
    ) -> KeyedRecords:
        """The newest stored records of a record key below the offset `before` (None: all), with
        tombstones. A page with fewer than `most` records need not be the last."""
        topic, reached = await self._topic(name, fresh=fresh, needs_history=True)
        ask = partial(self._index.history, topic.topic_id, key, before, most + 1)
        found, indexed_offset = await self._ask(topic, ask, reached)
        wanted = found.offsets[:most]
        while True:
            slices, dealt_with = await pick(
                self._reads, topic, sorted(wanted), limits.KEY_HISTORY_BYTES
            )
            if dealt_with == len(wanted):
                break
            # Only the oldest of them fitted: drop these, so that the page begins with the newest.
            wanted = wanted[: min(dealt_with, len(wanted) // 2)]
        if any(key_of(piece, i) != key for piece in slices for i in range(piece.begin, piece.end)):
            raise self._contradicted()
        next_before = wanted[-1] if len(found.offsets) > len(wanted) else None
        return KeyedRecords(self._result(topic, slices), next_before, indexed_offset)

    async def view(
        self,
        name: str,
        place: ViewPlace | None,
        most: int,
        max_bytes: int,
        *,
        fresh: bool,
        owner: str = OPERATOR,
    ) -> ViewPage:
        """The newest record of each record key without tombstones, in offset order. `place` None: a
        new view as of the indexed offset. Raises BadParameterError when the view has ended."""
        topic, _ = await self._topic(name, fresh=fresh)
        if place is None:
            # Nothing is indexed meanwhile: whatever is superseded later is kept for the view.
            async with self.indexing.adding:
                as_of = self.indexing.indexed_offset(topic)
                self._views.begin(topic.topic_id, as_of, owner)
            place = ViewPlace(topic.topic_id, as_of, 0)
        elif place.topic_id != topic.topic_id or place.as_of > topic.log_end_offset:
            raise BadParameterError("The cursor belongs to another topic.")
        else:
            self._views.go_on(topic.topic_id, place.as_of)
        as_of, begin = place.as_of, max(place.begin, topic.log_start_offset)
        ends = self._views.ends
        found, _ = await self._ask(
            topic, lambda _: self._index.live(topic.topic_id, as_of, begin, most + 1), as_of
        )
        if self._views.ends != ends and not self._views.is_in_use(topic.topic_id, as_of):
            raise _begins_again(topic)  # what it lacks would look deleted
        slices, dealt_with = await pick(self._reads, topic, found.offsets[:most], max_bytes)
        left = found.offsets[dealt_with:]
        next_place = ViewPlace(topic.topic_id, as_of, left[0]) if left else None
        return ViewPage(self._result(topic, slices, as_of), next_place)

    async def _topic(
        self, name: str, *, fresh: bool, needs_history: bool = False
    ) -> tuple[Topic, int]:
        """The topic, and the offset that its index must have reached for `fresh`."""
        self.asked()
        topic = self._catalog.topic(name)
        wanted = "history" if needs_history else "latest"
        if not is_indexed(topic) or (needs_history and topic.settings.key_index != "history"):
            raise KeyIndexOffError(
                f"Topic {name!r} has key_index {topic.settings.key_index or 'none'!r}. Set it to "
                f"{wanted!r} with PATCH /v1/topics/{name}; its records are indexed then.",
                key_index=topic.settings.key_index or "none",
            )
        reached = topic.log_end_offset if fresh else 0
        if fresh:
            await self.indexing.caught_up(topic, reached)
        return topic, reached

    async def _ask(
        self, topic: Topic, question: Callable[[int], Awaitable[Rows]], reached: int
    ) -> tuple[Rows, int]:
        """The answer to a question, which gets the log start offset; and the offset up to which it
        is true. `reached`: the index was true up to there before the question."""
        await self.indexing.caught_up(topic, 0)  # its file is loaded and checked
        try:
            found = await question(topic.log_start_offset)
        except CorruptObjectError:
            raise self._contradicted() from None
        except ConfigurationError as error:
            raise OverloadedError("The key index cannot be read now; try again later.") from error
        indexed_offset = max(found.indexed_offset, topic.log_start_offset)
        if indexed_offset < reached:
            raise _begins_again(topic)
        return found, indexed_offset

    def _contradicted(self) -> OverloadedError:
        self.indexing.damaged()
        return OverloadedError("The key index was damaged and is being rebuilt; try again later.")

    def _result(
        self, topic: Topic, slices: Sequence[BatchSlice], next_offset: int | None = None
    ) -> ReadResult:
        self._counters.reads += 1
        self._counters.read_records += sum(piece.end - piece.begin for piece in slices)
        start, end = topic.log_start_offset, topic.log_end_offset
        next_offset = end if next_offset is None else next_offset
        return ReadResult(topic.name, topic.topic_id, slices, next_offset, start, end)


def _begins_again(topic: Topic) -> OverloadedError:
    return OverloadedError(f"The key index of {topic.name!r} is being rebuilt; try again later.")

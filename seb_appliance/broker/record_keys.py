"""Questions about record keys: which there are, the newest record of one, all of them.

The key index says where; the records themselves are read from the log. What the log contradicts is
never answered: the index is made anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from seb_appliance.broker.catalog import Catalog
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.key_index import KeyIndex, KeyOffsets, KeyRow, KeyRows
from seb_appliance.broker.key_indexing import KeyIndexing, is_indexed
from seb_appliance.broker.key_views import KeyViews
from seb_appliance.broker.keyed_reads import key_of, pick
from seb_appliance.broker.reads import Reads
from seb_appliance.broker.topic import Topic
from seb_appliance.broker.values import BatchSlice, ReadResult
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    BadParameterError,
    CorruptObjectError,
    KeyIndexOffError,
    OverloadedError,
    RecordKeyNotFoundError,
)
from seb_appliance.start_errors import ConfigurationError
from seb_appliance.supervisor import Background, Supervisor

Rows = TypeVar("Rows", KeyRows, KeyOffsets)


@dataclass(frozen=True, slots=True)
class KeyPage:
    """`next_after`: the record key behind which the next page begins; None at the end."""

    topic_id: int
    rows: Sequence[KeyRow]
    next_after: bytes | None
    indexed_offset: int


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """Records of one record key, in offset order. `next_before`: below it the next page of its
    history begins; None at the end."""

    result: ReadResult
    next_before: int | None
    indexed_offset: int


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """Where the next page of a view begins: a view of a topic as of an offset."""

    topic_id: int
    as_of: int
    begin: int


@dataclass(frozen=True, slots=True)
class ViewPage:
    """Newest records of record keys as of an offset, which is `result.next_offset`: to go on from
    there after the last page (`next_place` is None)."""

    result: ReadResult
    next_place: ViewPlace | None


class RecordKeys:
    """`reads` are counted apart from those of consumers. `indexing` is public for its figures."""

    def __init__(
        self, catalog: Catalog, reads: Reads, index: KeyIndex, counters: Counters, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._reads = reads
        self._index = index
        self._counters = counters
        self._views = KeyViews(clock)
        self.indexing = KeyIndexing(catalog, reads, index, self._views, clock)
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
        """Record keys whose newest record is no tombstone, as bytes in their order.

        Raises, as all below: TopicNotFoundError, KeyIndexOffError, OverloadedError (`fresh` in
        vain, or the index cannot be asked now).
        """
        topic, reached = await self._topic(name, fresh=fresh)
        found = await self._ask(
            topic,
            lambda: self._index.page(
                topic.topic_id, prefix, after, most + 1, topic.log_start_offset
            ),
            reached,
        )
        rows = found.rows[:most]
        more = len(found.rows) > most
        return KeyPage(
            topic.topic_id,
            rows,
            rows[-1].key if more else None,
            max(found.indexed_offset, topic.log_start_offset),
        )

    async def latest(self, name: str, key: bytes, *, fresh: bool) -> KeyedRecords:
        """The newest record of a record key. Raises RecordKeyNotFoundError, also when it is a
        tombstone; CorruptObjectError, StoreError."""
        topic, reached = await self._topic(name, fresh=fresh)
        for attempt in range(2):
            found = await self._ask(
                topic,
                lambda: self._index.latest(topic.topic_id, key, topic.log_start_offset),
                reached,
            )
            indexed_offset = max(found.indexed_offset, topic.log_start_offset)
            if not found.rows:
                break
            slices, _ = await pick(self._reads, topic, [found.rows[0].offset])
            if slices and key_of(slices[0]) == key:
                self._count(slices)
                return KeyedRecords(self._result(topic, slices), None, indexed_offset)
            if found.rows[0].offset < topic.log_start_offset:
                break
            # Compaction removes a record only for a newer one: the index was behind, or is wrong.
            if attempt:
                raise self._contradicted()
            await self.indexing.caught_up(topic, topic.log_end_offset)
        raise RecordKeyNotFoundError(
            f"Topic {name!r} has no live record with this record key below offset "
            f"{indexed_offset}, up to which its keys are indexed.",
            indexed_offset=indexed_offset,
        )

    async def history(
        self, name: str, key: bytes, before: int | None, most: int, *, fresh: bool
    ) -> KeyedRecords:
        """The newest records of a record key below the offset `before` (None: all), tombstones
        too, as far as they are stored. A page may hold fewer than `most`, and not be the last."""
        topic, reached = await self._topic(name, fresh=fresh, needs_history=True)
        found = await self._ask(
            topic,
            lambda: self._index.history(
                topic.topic_id, key, before, most + 1, topic.log_start_offset
            ),
            reached,
        )
        wanted = found.offsets[:most]
        while True:
            slices, dealt_with = await pick(self._reads, topic, sorted(wanted))
            if dealt_with == len(wanted):
                break
            # There was room for the oldest of them only: the page is shorter, at its old end.
            wanted = wanted[: min(dealt_with, len(wanted) // 2)]
        if any(key_of(piece, i) != key for piece in slices for i in range(piece.begin, piece.end)):
            raise self._contradicted()
        self._count(slices)
        next_before = wanted[-1] if len(found.offsets) > len(wanted) else None
        indexed_offset = max(found.indexed_offset, topic.log_start_offset)
        return KeyedRecords(self._result(topic, slices), next_before, indexed_offset)

    async def view(
        self, name: str, place: ViewPlace | None, most: int, max_bytes: int, *, fresh: bool
    ) -> ViewPage:
        """The newest record of each record key that is no tombstone, as of where the index stands
        when `place` is None, in offset order. Raises BadParameterError when the view has ended."""
        topic, _ = await self._topic(name, fresh=fresh)
        if place is None:
            place = await self._begin_view(topic)
        elif place.topic_id != topic.topic_id or place.as_of > topic.log_end_offset:
            raise BadParameterError("The cursor is not of this topic.")
        else:
            self._views.go_on(topic.topic_id, place.as_of)
        as_of, begin = place.as_of, max(place.begin, topic.log_start_offset)
        ends = self._views.ends
        found = await self._ask(
            topic, lambda: self._index.live(topic.topic_id, as_of, begin, most + 1), as_of
        )
        if self._views.ends != ends and not self._views.is_in_use(topic.topic_id, as_of):
            raise _begun_anew(topic)  # what it lacks now would be taken for deleted
        slices, dealt_with = await pick(self._reads, topic, found.offsets[:most], max_bytes)
        self._count(slices)
        left = found.offsets[dealt_with:]
        next_place = ViewPlace(topic.topic_id, as_of, left[0]) if left else None
        return ViewPage(self._result(topic, slices, as_of), next_place)

    # --- inside ---

    async def _begin_view(self, topic: Topic) -> ViewPlace:
        """As of where the index stands. Nothing is taken into it meanwhile: from here on, what is
        superseded is kept."""
        async with self.indexing.adding:
            as_of = self.indexing.indexed_offset(topic)
            self._views.begin(topic.topic_id, as_of)
        return ViewPlace(topic.topic_id, as_of, 0)

    async def _topic(
        self, name: str, *, fresh: bool, needs_history: bool = False
    ) -> tuple[Topic, int]:
        """The topic, and the offset that its index has reached for `fresh`."""
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
        self, topic: Topic, question: Callable[[], Awaitable[Rows]], reached: int
    ) -> Rows:
        """`reached`: the index was true up to there before it was asked."""
        await self.indexing.caught_up(topic, 0)  # its file was found sound
        try:
            found = await question()
        except CorruptObjectError:
            raise self._contradicted() from None
        except ConfigurationError as error:
            raise OverloadedError("The key index cannot be read now; try again later.") from error
        if max(found.indexed_offset, topic.log_start_offset) < reached:
            raise _begun_anew(topic)
        return found

    def _contradicted(self) -> OverloadedError:
        self.indexing.damaged()
        return OverloadedError("The key index was damaged and is being rebuilt; try again later.")

    def _count(self, slices: Sequence[BatchSlice]) -> None:
        self._counters.reads += 1
        self._counters.read_records += sum(piece.end - piece.begin for piece in slices)

    def _result(
        self, topic: Topic, slices: Sequence[BatchSlice], next_offset: int | None = None
    ) -> ReadResult:
        end = topic.log_end_offset
        return ReadResult(
            topic.name,
            topic.topic_id,
            slices,
            end if next_offset is None else next_offset,
            topic.log_start_offset,
            end,
        )


def _begun_anew(topic: Topic) -> OverloadedError:
    return OverloadedError(
        f"The key index of {topic.name!r} has begun anew meanwhile; try again later."
    )

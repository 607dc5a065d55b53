"""The key index, and the task that updates it from the log in bulk, after the acknowledgement.

The index is a view of the log that may be lost at any time. Each topic has an `indexed_offset`
(exclusive) from which the task reads to the log end, as a consumer does. A new index, a lost file
and a restart differ only in that offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from seb_appliance import limits
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic, gone
from seb_appliance.broker.values import BatchSlice, From, ReadRequest
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    BadParameterError,
    ConfigurationError,
    CorruptObjectError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    OverloadedError,
    SebError,
    TopicNotFoundError,
)
from seb_appliance.formats.topic_settings import KeyIndexMode
from seb_appliance.tasks import in_slices


@dataclass(frozen=True, slots=True)
class IndexedTopic:
    mode: KeyIndexMode
    indexed_offset: int


@dataclass(frozen=True, slots=True)
class IndexRange:
    """All records of a topic from `offset` up to `next_offset` (exclusive)."""

    topic_id: int
    offset: int
    next_offset: int
    slices: Sequence[BatchSlice]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """The newest record of a record key; it is not a tombstone."""

    key: bytes
    offset: int
    timestamp_us: int


@dataclass(frozen=True, slots=True)
class KeyRows:
    """In the byte order of their record keys; true up to `indexed_offset`."""

    rows: Sequence[KeyRow]
    indexed_offset: int


@dataclass(frozen=True, slots=True)
class KeyOffsets:
    """True up to `indexed_offset`."""

    offsets: Sequence[int]
    indexed_offset: int


class KeyIndex(Protocol):
    """Every method raises CorruptObjectError when the index is damaged (then `clear` it), and
    ConfigurationError when its file cannot be used. Rows below `log_start` are never returned."""

    @property
    def size_bytes(self) -> int:
        """About what it takes on disk."""

    async def load(self) -> dict[int, IndexedTopic]:
        """Check the file; what is indexed, by topic id."""

    async def clear(self) -> None:
        """Delete everything."""

    async def begin(self, topic_id: int, topic: IndexedTopic) -> None:
        """Index a topic from an offset on; delete what was indexed of it."""

    async def drop(self, topic_id: int) -> None:
        """Forget a topic and all its rows."""

    async def trim(self, topic_id: int, log_start: int) -> None:
        """Forget rows below a log start offset."""

    async def add(self, ranges: Sequence[IndexRange], kept_below: Mapping[int, int]) -> None:
        """Add records in one transaction; each range begins at its topic's indexed offset. Records
        that they supersede below the topic's offset in `kept_below` are kept for `live`."""

    async def forget_kept(self, topic_id: int) -> None:
        """Delete what was kept for `live`."""

    async def latest(self, topic_id: int, key: bytes, log_start: int) -> KeyRows:
        """The row of a record key, or none."""

    async def page(
        self, topic_id: int, prefix: bytes, after: bytes | None, most: int, log_start: int
    ) -> KeyRows:
        """Record keys that begin with `prefix` and come behind `after`."""

    async def history(
        self, topic_id: int, key: bytes, before: int | None, most: int, log_start: int
    ) -> KeyOffsets:
        """All records of a record key below `before` (None: all), newest first, with tombstones."""

    async def live(self, topic_id: int, as_of: int, begin: int, most: int) -> KeyOffsets:
        """The newest records of all record keys as of `as_of`, from the offset `begin` on, in
        offset order, without tombstones. Exact if what was superseded since was kept."""


class KeyViews:
    """Views of the latest records that clients page through, each as of one offset. The index keeps
    superseded records for a view until it has been idle for ten minutes."""

    def __init__(self, clock: Clock, shares: AllShares) -> None:
        self._clock = clock
        self._shares = shares.declare(
            "key_views", limits.KEY_VIEWS_MAX, "views that are being paged through"
        )
        self._in_use: dict[int, dict[int, tuple[float, str]]] = {}
        self._ended: set[int] = set()  # topics that may have kept rows which no view needs
        self.ends = 0  # how often views ended because an index was begun again

    def begin(self, topic_id: int, as_of: int, owner: str) -> None:
        """Raises ShareExceededError and OverloadedError when too many are in use."""
        self._expire()
        if not self.is_in_use(topic_id, as_of):
            self._shares.take(owner, 1)
            self._in_use.setdefault(topic_id, {})[as_of] = (0.0, owner)
        self._use(topic_id, as_of)

    def go_on(self, topic_id: int, as_of: int) -> None:
        """Raises BadParameterError when the view has ended."""
        self._expire()
        if not self.is_in_use(topic_id, as_of):
            raise BadParameterError(
                "The view of this cursor has ended (10 minutes after its last use, or with a "
                "restart of the appliance). Begin the view again."
            )
        self._use(topic_id, as_of)

    def is_in_use(self, topic_id: int, as_of: int) -> bool:
        return as_of in self._in_use.get(topic_id, ())

    def kept_below(self) -> dict[int, int]:
        """By topic id: superseded records at a smaller offset must be kept."""
        self._expire()
        return {topic_id: max(in_use) for topic_id, in_use in self._in_use.items()}

    def ended(self, topic_id: int) -> bool:
        """Whether the last view of the topic has ended since the last call."""
        self._expire()
        is_ended = topic_id in self._ended
        self._ended.discard(topic_id)
        return is_ended

    def end(self, topic_id: int) -> None:
        """End the views of a topic whose index begins again."""
        self.ends += 1
        ended = self._in_use.pop(topic_id, None)
        if ended:
            self._ended.add(topic_id)
            for _, owner in ended.values():
                self._shares.give_back(owner, 1)

    def end_all(self) -> None:
        for topic_id in list(self._in_use):
            self.end(topic_id)
        self.ends += 1
        self._ended.clear()

    def _use(self, topic_id: int, as_of: int) -> None:
        until_s = self._clock.monotonic_s() + limits.KEY_VIEW_IDLE_S
        in_use = self._in_use[topic_id]
        in_use[as_of] = (until_s, in_use[as_of][1])
        self._ended.discard(topic_id)

    def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        for topic_id, in_use in list(self._in_use.items()):
            for as_of, (until_s, owner) in list(in_use.items()):
                if until_s <= now_s:
                    del in_use[as_of]
                    self._shares.give_back(owner, 1)
            if not in_use:
                del self._in_use[topic_id]
                self._ended.add(topic_id)


def is_indexed(topic: Topic) -> bool:
    return topic.settings.key_index in {"latest", "history"} and not topic.deleted


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the index of a topic, which holds everything below `indexed_offset`."""

    name: str
    indexed_offset: int
    log_end_offset: int

    @property
    def lag(self) -> int:
        """Records that the index lacks, with gaps."""
        return self.log_end_offset - self.indexed_offset


class KeyIndexing:
    """`run` is one long-lived task, the only one that changes the index. `rebuilds` counts damaged
    indexes."""

    def __init__(
        self, catalog: Catalog, reads: Reads, index: KeyIndex, views: KeyViews, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._reads = reads
        self._index = index
        self._views = views
        self._clock = clock
        self._known: dict[int, IndexedTopic] = {}
        self._trimmed: dict[int, int] = {}  # topic id → log start offset that the index knows
        # Topic id → `merged_to_start` when the last indexed records were read, and their end.
        self._compared: dict[int, tuple[int, int]] = {}
        self._due: dict[int, None] = {}
        self._arrived = asyncio.Event()
        self._moved = asyncio.Event()  # set, and replaced, after each round
        self._hurried = 0  # how many callers wait for a fresh index
        self._loaded = False
        self._damaged = False
        self.adding = asyncio.Lock()  # while records are added, no view begins
        self._stopped = ""  # why nothing is indexed at all
        self._unreadable: dict[int, str] = {}  # topic id → why its records cannot be read
        self.rebuilds = 0

    @property
    def failure(self) -> str:
        """Why the index does not follow the log; "" while it does."""
        return self._stopped or next(iter(self._unreadable.values()), "")

    def applied(self, topics: Iterable[Topic]) -> None:
        """These topics have changed: more records, other settings, deleted."""
        for topic in topics:
            if is_indexed(topic) or topic.topic_id in self._known:
                self._due[topic.topic_id] = None
                self._arrived.set()

    def damaged(self) -> None:
        """The index contradicts the log, or is unreadable: rebuild it."""
        self._damaged = True
        self._arrived.set()

    def indexed_offset(self, topic: Topic) -> int:
        """The offset (exclusive) up to which the index is true for the topic."""
        known = self._known.get(topic.topic_id)
        if known is None or known.mode != topic.settings.key_index:
            return topic.log_start_offset
        return max(known.indexed_offset, topic.log_start_offset)

    async def progress(self) -> list[Progress]:
        """Of all topics with an index."""
        return [
            Progress(topic.name, self.indexed_offset(topic), topic.log_end_offset)
            async for topic in in_slices(list(self._catalog.unsorted()))
            if is_indexed(topic)
        ]

    async def caught_up(self, topic: Topic, offset: int) -> None:
        """Wait until the index has reached `offset`. Raises OverloadedError when that takes too
        long, TopicNotFoundError when the topic is deleted."""
        if self._loaded and self.indexed_offset(topic) >= offset:
            return
        give_up_s = self._clock.monotonic_s() + limits.KEY_INDEX_FRESH_S
        self._hurried += 1
        self._arrived.set()
        timer = self._clock.call_later(limits.KEY_INDEX_FRESH_S, self._wake)
        try:
            while not self._loaded or self.indexed_offset(topic) < offset:
                if topic.deleted:
                    raise gone(topic)
                if self._clock.monotonic_s() >= give_up_s:
                    raise OverloadedError(
                        f"The key index of {topic.name!r} has reached offset "
                        f"{self.indexed_offset(topic)} of {offset}. Try again later, or without "
                        "fresh.",
                        indexed_offset=self.indexed_offset(topic),
                    )
                await self._moved.wait()
        finally:
            timer.cancel()
            self._hurried -= 1

    async def run(self) -> None:
        damage: CorruptObjectError | None = None
        while True:
            try:
                if damage is not None:
                    await self._rebuild(damage)
                    damage = None
                await self._follow()
            except CorruptObjectError as error:
                damage = error
            except ConfigurationError as error:  # for example a full disk
                self._stopped = error.detail
                await self._clock.sleep(limits.KEY_INDEX_RETRY_S)
            except Exception as error:
                self._stopped = f"the key index has stopped for a bug of ours: {error!r}"
                raise  # the supervisor restarts this task

    async def _follow(self) -> None:
        """Load, then keep up. Raises what the index raises."""
        self._known = await self._index.load()
        self._compared.clear()
        self._loaded = True
        known = [self._catalog.find_id(topic_id) for topic_id in self._known]
        self._due = dict.fromkeys(self._known)
        self.applied([*self._catalog.topics(), *(topic for topic in known if topic is not None)])
        if self._due:
            self._arrived.set()
        self._wake()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if not self._hurried:
                await self._clock.sleep(limits.KEY_INDEX_GATHER_S)
            while self._due:
                began_s, seq = self._clock.monotonic_s(), self._catalog.position.seq
                await self._round()
                if self._due and not self._hurried:
                    took_s = self._clock.monotonic_s() - began_s
                    is_busy = self._catalog.position.seq != seq
                    rest = limits.KEY_INDEX_REST_BUSY if is_busy else limits.KEY_INDEX_REST
                    await self._clock.sleep(took_s * rest)
                self._stopped = ""
            if self._damaged:
                raise CorruptObjectError("the key index contradicts the log")

    async def _rebuild(self, error: CorruptObjectError) -> None:
        self._stopped = f"the key index was damaged ({error.detail}); it is being rebuilt"
        self.rebuilds += 1
        self._loaded = self._damaged = False  # callers wait until it is loaded again
        self._known.clear()
        self._trimmed.clear()
        self._views.end_all()
        await self._index.clear()

    async def _round(self) -> None:
        """Index new records of some topics in one transaction."""
        ranges: list[IndexRange] = []
        size_bytes = count = 0
        for topic_id in list(self._due)[: limits.KEY_INDEX_ROUND_TOPICS]:
            topic = self._catalog.find_id(topic_id)
            if topic is None or not is_indexed(topic):
                await self._forget(topic_id)
                del self._due[topic_id]
                continue
            merged = await self._prepare(topic)
            offset = self._known[topic_id].indexed_offset
            try:
                records = await self._read(topic, offset)
            except SebError as error:
                self._unreadable[topic_id] = f"topic {topic.name!r} cannot be indexed: {error}"
                self._due.pop(topic_id, None)
                self._clock.call_later(limits.KEY_INDEX_RETRY_S, partial(self.applied, [topic]))
                continue
            self._unreadable.pop(topic_id, None)
            if topic.merged_to_start != merged:  # read before and after a compaction: read again
                continue
            if records is None:
                self._due.pop(topic_id, None)
                continue
            ranges.append(records)
            self._compared[topic_id] = merged, records.next_offset
            size_bytes += sum(len(piece.stored) for piece in records.slices)
            count += records.next_offset - offset
            if (
                size_bytes >= limits.KEY_INDEX_ROUND_BYTES
                or count >= limits.KEY_INDEX_ROUND_RECORDS
            ):
                break
        if ranges:
            async with self.adding:
                await self._index.add(ranges, self._views.kept_below())
                for records in ranges:
                    mode = self._known[records.topic_id].mode
                    self._known[records.topic_id] = IndexedTopic(mode, records.next_offset)
        self._wake()

    async def _forget(self, topic_id: int) -> None:
        self._trimmed.pop(topic_id, None)
        self._compared.pop(topic_id, None)
        self._unreadable.pop(topic_id, None)
        if topic_id in self._known:
            await self._index.drop(topic_id)
            del self._known[topic_id]
            self._views.end(topic_id)

    async def _prepare(self, topic: Topic) -> int:
        """Begin or trim the index of the topic, so that records can be added. Returns
        `merged_to_start` as it was before, since this may take long."""
        topic_id, start, merged = topic.topic_id, topic.log_start_offset, topic.merged_to_start
        known = self._known.get(topic_id)
        mode = topic.settings.key_index
        assert mode is not None
        if (
            known is None
            or known.mode != mode
            or not start <= known.indexed_offset <= topic.log_end_offset
            or self._lacks_tombstones(topic, known)
        ):
            self._views.end(topic_id)
            begin = IndexedTopic(mode, start)
            await self._index.begin(topic_id, begin)
            self._known[topic_id] = begin
        elif self._trimmed.get(topic_id, 0) < start:
            await self._index.trim(topic_id, start)
        self._trimmed[topic_id] = start
        self._compared[topic_id] = merged, self._known[topic_id].indexed_offset
        if self._views.ended(topic_id):
            await self._index.forget_kept(topic_id)
        return merged

    def _lacks_tombstones(self, topic: Topic, known: IndexedTopic) -> bool:
        """Whether compaction may have removed tombstones that the index lacks: it would show the
        deleted records for ever."""
        merged, offset = self._compared.get(topic.topic_id, (-1, known.indexed_offset))
        if merged == topic.merged_to_start:
            return False
        return any(run.base <= topic.log_start_offset and run.last >= offset for run in topic.runs)

    async def _read(self, topic: Topic, offset: int) -> IndexRange | None:
        """Some records that the index lacks; None when it lacks none."""
        if offset >= topic.log_end_offset:
            return None
        request = ReadRequest(
            From(offset=offset),
            max_records=limits.KEY_INDEX_ROUND_RECORDS,
            max_bytes=limits.KEY_INDEX_ROUND_BYTES,
        )
        try:
            result = await self._reads.read(topic.name, request)
        # Trimmed, deleted or created again meanwhile: the next round handles that.
        except (OffsetExpiredError, OffsetOutOfRangeError, TopicNotFoundError):
            if not topic.deleted and topic.log_start_offset <= offset:
                raise
            return IndexRange(topic.topic_id, offset, offset, [])
        if result.topic_id != topic.topic_id:
            return IndexRange(topic.topic_id, offset, offset, [])
        return IndexRange(topic.topic_id, offset, result.next_offset, result.slices)

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

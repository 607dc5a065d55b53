"""A consumer on an asyncio event loop: reads ahead in the background, hands out in order."""

from __future__ import annotations

import asyncio
import contextlib
import random as random_numbers
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Self

from msgspec.structs import replace

from seb_appliance import limits
from seb_appliance.client import reading
from seb_appliance.client.failures import (
    ApplianceError,
    ClientError,
    ClosedError,
    ConfigurationError,
)
from seb_appliance.client.leasing import Commits, Lease
from seb_appliance.client.reading import Reading, RecordKey, batches
from seb_appliance.client.records import Data, Record, RecordBatch
from seb_appliance.client.transacting import Transaction, opened
from seb_appliance.client.transport import Caller, Endpoint
from seb_appliance.clock import Clock, SystemClock

PATIENCE_S: Final = 120.0
TOPICS_MAX: Final = 200  # each has a connection that waits for its records
LEASE_TTL_MS: Final = 30_000

CommitMode = Literal["after_batch", "by_hand"]


class _Ahead(NamedTuple):
    """A batch that waits to be handed out. `reader`: who read it. A topic that is deleted and
    created again gets another reader."""

    batch: RecordBatch
    reader: asyncio.Task[None]


class _Looped(NamedTuple):
    """A batch that is handed out record by record, and those that are left of it."""

    batch: RecordBatch
    left: Iterator[Record]


class AsyncConsumer:
    """Reads topics of the appliance at `url`: names, or patterns such as `orders.*`. New topics of
    a pattern are found every `refresh_s`.

    Without `group` it begins at `offset` and cannot commit. With `group` it begins at the committed
    offset, or at `offset` (`earliest` or `latest`) if there is none. `commit="after_batch"` commits
    a batch when the next one is requested, that is, after it was processed: at least once. With
    `commit="by_hand"`, call `commit()`. With `lease` (a holder name that no other consumer uses) it
    waits until it holds the group's lease, and renews the lease until it is closed.

    `view="latest"`: first the newest record of each record key (batches with `is_view`), then all
    later records, to build a table and keep it up to date. `follow=False`: stop at the current log
    end.

    It reads ahead: at most `prefetch` batches and one more for each topic are in memory, each of
    about `max_bytes`. Records of one topic are in order; there is no order between topics. It
    retries for up to `patience_s` if the appliance is unreachable. Create and use it on one event
    loop.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        offset: int | str = "earliest",
        commit: CommitMode = "by_hand",
        lease: str | None = None,
        lease_ttl_ms: int = LEASE_TTL_MS,
        view: Literal["latest"] | None = None,
        follow: bool = True,
        prefetch: int = 4,
        max_bytes: int = 1 * limits.MIB,
        refresh_s: float = 30.0,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        """Raises ConfigurationError."""
        if group is None and (commit != "by_hand" or lease is not None):
            raise ConfigurationError("commit and lease need a group")
        if group is not None and view is not None:
            raise ConfigurationError("view cannot be used with a group")
        if group is not None and offset not in ("earliest", "latest"):
            raise ConfigurationError(
                "with a group, offset must be earliest or latest; it applies where the group "
                "has no offset"
            )
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self._clock = clock or SystemClock()
        self.caller = Caller(
            Endpoint(url, api_key),
            self._clock,
            random,
            connections=TOPICS_MAX + 2,  # a commit and a renewal never wait for a read
            patience_s=patience_s,
        )
        self._reading = Reading(offset, view, follow, max_bytes)
        self._lease = (
            None
            if group is None or lease is None
            else Lease(self.caller, group, lease, lease_ttl_ms)
        )
        self._commits = None if group is None else Commits(self.caller, group, self._lease)
        self._commits_itself = commit == "after_batch"
        self._refresh_s = refresh_s
        self._ahead: asyncio.Queue[_Ahead | Exception | None] = asyncio.Queue(prefetch)
        self._looped: _Looped | None = None  # what a loop over records is in the middle of
        self._handed: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_abandoned = False
        self._closed = False

    async def next_batch(self) -> RecordBatch | None:
        """The next batch with records; None if everything was read (`follow=False`). Cancelling it
        loses nothing. Raises ApplianceError, LeaseLostError, UnreadableAnswerError, ClosedError."""
        while True:
            batch = await self._next()
            if batch is None:
                return None
            if len(batch):
                return batch

    async def batches(self) -> AsyncIterator[RecordBatch]:
        """`next_batch` until there is none."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def __aiter__(self) -> AsyncIterator[Record]:
        """The records one by one. `commit()` then commits up to and including the last one."""
        async for batch in self.batches():
            for record in self.one_by_one(batch):
                yield record

    def one_by_one(self, batch: RecordBatch) -> Iterator[Record]:
        """The records of the last batch, one by one. If the loop ends early, the rest is the next
        batch."""
        looped = self._looped = _Looped(batch, iter(batch.records))
        for record in looped.left:
            self._move(batch, record.offset + 1)
            yield record
        if self._looped is looped:
            self._looped = None
            self._move(batch, batch.next_offset)

    async def latest(self, topic: str, key: Data, *, fresh: bool = False) -> Record | None:
        """The newest record of a record key; None if there is none, or a tombstone. Of any topic
        with a `key_index`. `fresh`: waits for what was acknowledged before. Raises ApplianceError,
        BadRecordError."""
        return await reading.latest(self.caller, topic, key, fresh=fresh)

    def keys(
        self, topic: str, *, prefix: Data = b"", after: Data | None = None, fresh: bool = False
    ) -> AsyncIterator[RecordKey]:
        """The record keys of a topic that begin with `prefix` and are greater than `after`, in byte
        order. Raises as `latest`."""
        return reading.each(reading.keys(self.caller, topic, prefix, after, fresh=fresh))

    def history(
        self, topic: str, key: Data, *, before: int | None = None, fresh: bool = False
    ) -> AsyncIterator[Record]:
        """All stored records of a record key below the offset `before`, newest first, including
        tombstones. The topic needs `key_index` `history`. Raises as `latest`."""
        return reading.each(reading.history(self.caller, topic, key, before, fresh=fresh))

    async def commit(self, offsets: Mapping[str, int] | None = None) -> None:
        """Commit what was handed out, or `offsets`: the next offset to read, by topic. Raises
        ApplianceError, LeaseLostError."""
        if self._commits is None:
            raise ClientError("a consumer without a group cannot commit")
        if offsets is None:
            await self._commit_handed(self._commits)
        else:
            await self._commits.commit(offsets)

    async def _commit_handed(
        self, commits: Commits, transaction: Transaction | None = None
    ) -> None:
        """Without topics of a pattern that were deleted since."""
        while True:
            try:
                await commits.commit(dict(self._handed), transaction)
            except ApplianceError as error:
                topic = str(error.problem.get("topic"))
                is_open = transaction is not None and error.side_effects == "unknown"
                if topic in self._topics or not _is_gone(error) or is_open:
                    raise
                if self._handed.pop(topic, None) is None:
                    raise
            else:
                return

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Use it with `async with`. At its end, the records sent to the transaction and the commit
        of the batches handed out are stored together, or not at all. So each batch takes effect
        once. If the body or the end fails, the consumer cannot be used any more; a new one
        continues at the committed offsets. Raises ApplianceError, LeaseLostError, and ClientError
        without a group."""
        with self.open_transaction() as transaction:
            yield transaction
            await self.store(transaction)

    def open_transaction(self) -> contextlib.AbstractContextManager[Transaction]:
        """What of `transaction` waits for nothing."""
        if self._commits is None:
            raise ClientError("a consumer without a group cannot commit in a transaction")
        self._check_open()
        return opened(self._clock.wall_us, self.abandon)

    async def store(self, transaction: Transaction) -> None:
        """What of `transaction` waits."""
        assert self._commits is not None, "open_transaction() was asked first"
        await self._commit_handed(self._commits, transaction)

    def abandon(self) -> None:
        """A batch was lost before the caller got it: hand out and commit nothing more."""
        self._handed.clear()
        self._is_abandoned = True

    async def close(self) -> None:
        """Does not commit, because the last batch may not have been processed. Releases the
        lease."""
        if self._closed:
            return
        self._closed = True
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        try:
            if self._lease is not None:
                with contextlib.suppress(ApplianceError):  # it runs out by itself
                    await self._lease.give_back()
        finally:
            self.caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _next(self) -> RecordBatch | None:
        """Also one without records, which only moves on."""
        self._check_open()
        if self._commits_itself:
            await self.commit()
        if self._looped is not None:
            return self._rest_of(self._looped)
        if self._is_over:
            return None
        if self._work is None:
            self._work = asyncio.create_task(self._run())
        item = await self._ahead.get()
        if isinstance(item, Exception):
            self._is_over = True
            raise item
        if item is None:
            self._is_over = True
            return None
        batch, reader = item
        if not batch.is_view and self._tasks.get(batch.topic) is reader:
            self._handed[batch.topic] = batch.next_offset
        return batch

    def _check_open(self) -> None:
        if self._closed or self._is_abandoned:
            raise ClosedError(
                "the consumer was closed or interrupted, or one of its transactions failed: "
                "create a new consumer"
            )

    def _rest_of(self, looped: _Looped) -> RecordBatch:
        self._looped = None
        self._move(looped.batch, looped.batch.next_offset)
        return replace(looped.batch, records=list(looped.left))

    def _move(self, batch: RecordBatch, offset: int) -> None:
        """`batch` was handed out up to `offset`. Nothing is committed for a deleted topic."""
        if not batch.is_view and batch.topic in self._handed:
            self._handed[batch.topic] = offset

    async def _run(self) -> None:
        """Find topics, read them, renew the lease. Failures are raised in the reading caller."""
        try:
            async with asyncio.TaskGroup() as group:
                if self._lease is not None:
                    await self._lease.take()
                    keeping = group.create_task(self._lease.keep())
                await self._look(group)
                if not self._reading.follow:
                    await asyncio.gather(*self._tasks.values())
                    if self._lease is not None:
                        keeping.cancel()
                elif any(_is_pattern(topic) for topic in self._topics):
                    while True:
                        await self._clock.sleep(self._refresh_s)
                        await self._look(group)
        except* Exception as failures:
            await self._ahead.put(_first(failures))
        else:
            await self._ahead.put(None)

    async def _look(self, group: asyncio.TaskGroup) -> None:
        """Begin to read the topics that are new. Raises ApplianceError, ClientError."""
        for wanted in self._topics:
            for topic in await self._named(wanted):
                if topic not in self._tasks:
                    if len(self._tasks) == TOPICS_MAX:
                        raise ClientError(f"a consumer can have at most {TOPICS_MAX} topics")
                    self._tasks[topic] = group.create_task(self._read(topic, wanted))

    async def _named(self, wanted: str) -> list[str]:
        if not _is_pattern(wanted):
            return [wanted]
        answer = await self.caller.get("/v1/topics", {"pattern": wanted})
        return [found["topic"] for found in answer.json()["topics"]]

    async def _read(self, topic: str, wanted: str) -> None:
        reader = asyncio.current_task()
        assert reader is not None
        try:
            async for batch in batches(self.caller, topic, self._reading, self._commits):
                await self._ahead.put(_Ahead(batch, reader))
        except ApplianceError as error:
            if topic == wanted or not _is_gone(error):
                raise
            # It matched, and was deleted.
            del self._tasks[topic]
            self._handed.pop(topic, None)


def _is_gone(error: ApplianceError) -> bool:
    """The topic was deleted together with its offsets. A new topic may have its name."""
    return error.code in ("topic_not_found", "topic_held", "topic_replaced")


def _is_pattern(topic: str) -> bool:
    return "*" in topic


def _first(failures: BaseExceptionGroup[Exception]) -> Exception:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first

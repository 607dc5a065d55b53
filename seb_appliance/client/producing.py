"""A producer on an asyncio event loop: records gather in batches and go out in the background."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random as random_numbers
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.client.batching import Batch, Buffer, Delivery, called_back
from seb_appliance.client.failures import ApplianceError, ClosedError, no_answer
from seb_appliance.client.records import Data, Headers, NewRecord, Value, new_record
from seb_appliance.client.transacting import Transaction, opened
from seb_appliance.client.transport import Answer, Caller, Endpoint, Retrying
from seb_appliance.clock import Clock, SystemClock

ON_THE_WAY_MAX: Final = 4

# The answer to any seq that is still on its way again must be remembered.
assert ON_THE_WAY_MAX < limits.PRODUCER_SEQS_REMEMBERED


class Numbers:
    """The seqs of an idempotent producer in one topic (docs/GUARANTEES.md).

    Batches get seqs in the order in which they are sent. Each keeps its number until it is settled,
    however often it is sent. The caller settles a batch after it has asked here. `producer_id` must
    be unique, so that epoch 0 is free."""

    def __init__(self, producer_id: str) -> None:
        self.producer_id = producer_id
        self._epoch = 0
        self._next_seq = 0
        self._on_the_way: dict[Batch, int] = {}  # in the order of their seqs

    @property
    def has_room(self) -> bool:
        """Counted from the oldest one without an answer; those after it may already be stored."""
        oldest = next(iter(self._on_the_way.values()), self._next_seq)
        return self._next_seq - oldest < ON_THE_WAY_MAX

    @property
    def on_the_way(self) -> Sequence[Batch]:
        return tuple(self._on_the_way)

    def send(self, batch: Batch) -> None:
        """It gets the next seq."""
        assert self.has_room, self._on_the_way.values()
        self._on_the_way[batch] = self._next_seq
        self._next_seq += 1

    def of(self, batch: Batch) -> tuple[int, int]:
        """Its epoch and seq of now."""
        return self._epoch, self._on_the_way[batch]

    def headers(self, batch: Batch) -> dict[str, str]:
        epoch, seq = self.of(batch)
        return {
            "Producer-Id": self.producer_id,
            "Producer-Epoch": str(epoch),
            "Producer-Seq": str(seq),
        }

    def is_first(self, batch: Batch) -> bool:
        """Whether everything before it is settled."""
        return next(iter(self._on_the_way)) is batch

    def stored(self, batch: Batch) -> None:
        del self._on_the_way[batch]

    def refused(self, batch: Batch) -> None:
        """The first one is not stored and never will be. Because seqs are stored without gaps, no
        later one of this epoch can be stored either. So the others are renumbered in the next
        epoch, and their attempts with old numbers will be refused."""
        assert self.is_first(batch)
        del self._on_the_way[batch]
        self.begin_again()

    def begin_again(self) -> None:
        """Begin the next epoch and renumber what is in flight from seq 0. Only if none of it is
        stored."""
        self._epoch += 1
        self._on_the_way = {other: seq for seq, other in enumerate(self._on_the_way)}
        self._next_seq = len(self._on_the_way)

    def lost(self, batch: Batch) -> Sequence[Batch]:
        """The first one and those after it may be stored, so none of them can be renumbered. Later
        batches begin the next epoch."""
        assert self.is_first(batch)
        lost = self.on_the_way
        self._on_the_way = {}
        self.begin_again()
        return lost


BATCH: Final = "application/vnd.seb.batch"
CONNECTIONS: Final = 8
PATIENCE_S: Final = 120.0
ZSTD_LEVEL: Final = 1
ZSTD_FROM_BYTES: Final = 1024  # less does not shrink enough for the trouble

Compression = Literal["zstd", "none"]


class _Lane:
    """The batches of one topic that are on their way, and who sends the next ones."""

    def __init__(self, topic: str, producer_id: str) -> None:
        self.topic = topic
        self.numbers = Numbers(producer_id)
        self.sending = asyncio.Lock()
        self.changed = asyncio.Event()  # something to take, or a batch was settled
        self.turn = asyncio.Condition()  # another batch is the first one now
        self.task: asyncio.Task[None] | None = None


class _Sent(NamedTuple):
    """How a batch was numbered in an attempt, and whether everything before it was settled."""

    epoch: int
    was_first: bool


class _Produced(msgspec.Struct):
    offset: int | None


class AsyncProducer:
    """Sends records to topics of the appliance at `url`: each record once, in order within its
    topic.

    `send` puts a record into a buffer and returns. A batch is sent when it has `batch_bytes` or
    10,000 records, or `linger_ms` after its first record; up to four batches of a topic are in
    flight. Each batch is retried for up to `patience_s`, and is stored once even if answers are
    lost or the appliance restarts (idempotent producer, docs/GUARANTEES.md). `send` waits while
    `buffer_bytes` are not acknowledged.

    `async with` sends everything before it ends, also after an exception or a cancellation. Create
    and use it on one event loop.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        linger_ms: float = 5,
        batch_bytes: int = 1 * limits.MIB,
        buffer_bytes: int = 32 * limits.MIB,
        compression: Compression = "zstd",
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
        random: Callable[[], float] = random_numbers.random,
        producer_id: Callable[[], str] = lambda: f"client-{secrets.token_hex(12)}",
    ) -> None:
        """Raises ConfigurationError."""
        self._clock = clock or SystemClock()
        self._caller = Caller(
            Endpoint(url, api_key),
            self._clock,
            random,
            connections=CONNECTIONS,
            patience_s=patience_s,
        )
        self._loop = asyncio.get_running_loop()
        self._producer_id = producer_id()
        self._zstd_level = ZSTD_LEVEL if compression == "zstd" else None
        self._lanes: dict[str, _Lane] = {}
        self._deliveries: set[asyncio.Task[None]] = set()
        self._flushing = 0
        self._failure: Exception | None = None
        self._closed = False
        self.buffer = Buffer(
            max_bytes=buffer_bytes,
            batch_bytes=batch_bytes,
            linger_s=linger_ms / 1000,
            wake=self._wake,
        )

    async def send(
        self,
        topic: str,
        value: Value,
        *,
        key: Data | None = None,
        headers: Headers | None = None,
        timestamp: datetime.datetime | None = None,
        delay: datetime.datetime | datetime.timedelta | None = None,
    ) -> Delivery:
        """Buffer a record; await the returned delivery to get its offset. `value`: bytes or text;
        None for a tombstone; a dict, list, number or bool is stored as JSON. `timestamp`: default
        now. `delay`: when, or how much later, queues hand it out; readers get it at once.
        Waits while the buffer is full. Raises BadRecordError, ClosedError."""
        record = self.record(topic, value, key, headers, timestamp, delay)
        while (delivery := self.add(topic, record)) is None:
            await called_back(self.buffer.when_room)
        return delivery

    def add(self, topic: str, record: NewRecord) -> Delivery | None:
        """From any thread. None: the buffer is full."""
        return self.buffer.add(topic, record, self._clock.monotonic_s())

    def record(
        self,
        topic: str,
        value: Value,
        key: Data | None,
        headers: Headers | None,
        timestamp: datetime.datetime | None,
        delay: datetime.datetime | datetime.timedelta | None,
    ) -> NewRecord:
        """From any thread. Raises BadRecordError."""
        return new_record(topic, value, key, headers, timestamp, delay, self._clock.wall_us())

    async def flush(self) -> None:
        """Send the buffered records immediately, and wait until they are acknowledged. Raises the
        first failure of a record since the last flush."""
        self._flushing += 1
        try:
            for topic in self.buffer.topics():
                self._look_after(topic)
            for batch in self.buffer.unsettled():
                await called_back(batch.when_settled)
        finally:
            self._flushing -= 1
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Use it with `async with`. At its end, all records sent to the transaction, to any topics,
        are stored, or none. It does not wait for records of earlier calls of `send`. Raises
        ApplianceError, ClosedError."""
        with self.open_transaction() as transaction:
            yield transaction
            await self.store(transaction)

    def open_transaction(self) -> contextlib.AbstractContextManager[Transaction]:
        """What of `transaction` waits for nothing."""
        if self._closed:
            raise ClosedError("the producer is closed")
        return opened(self._clock.wall_us)

    async def store(self, transaction: Transaction) -> None:
        """What of `transaction` waits."""
        await transaction.store(self._caller)

    async def close(self) -> None:
        """Flush and close. Raises as `flush` does; the producer is closed even then."""
        if self._closed:
            return
        self._closed = True
        self.buffer.close()  # first: what was taken is sent
        try:
            await self.flush()
        finally:
            for batch in self.buffer.unsettled():
                batch.failed(ClosedError("the producer was closed before this was acknowledged"))
            tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
            for task in (*tasks, *self._deliveries):
                task.cancel()
            await asyncio.gather(*tasks, *self._deliveries, return_exceptions=True)
            self._caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except (ApplianceError, ClosedError) as failure:
            if error is None:
                raise
            error.add_note(f"Beside this, records were not acknowledged: {failure}")

    def _wake(self, topic: str) -> None:
        self._loop.call_soon_threadsafe(self._look_after, topic)

    def _look_after(self, topic: str) -> None:
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = _Lane(topic, self._producer_id)
        lane.changed.set()
        if lane.task is None:
            lane.task = self._loop.create_task(self._run(lane))

    async def _run(self, lane: _Lane) -> None:
        """Send batches one after another, when they are due and fewer than the limit are in
        flight."""
        while True:
            lane.changed.clear()
            now_s = self._clock.monotonic_s()
            batch = None
            if lane.numbers.has_room:
                batch = self.buffer.take(lane.topic, now_s, eager=self._flushing > 0)
            if batch is None:
                await self._until(lane, now_s)
                continue
            lane.numbers.send(batch)
            delivery = self._loop.create_task(self._deliver(lane, batch))
            self._deliveries.add(delivery)
            delivery.add_done_callback(self._deliveries.discard)
            await asyncio.sleep(0)  # it takes its turn to send before the next one

    async def _until(self, lane: _Lane, now_s: float) -> None:
        due_s = self.buffer.due_s(lane.topic, now_s) if lane.numbers.has_room else None
        try:
            async with asyncio.timeout(due_s):
                await lane.changed.wait()
        except TimeoutError:
            return

    async def _deliver(self, lane: _Lane, batch: Batch) -> None:
        """Runs until the batch is settled, because callers wait for that."""
        try:
            await self._send_until_settled(lane, batch)
        except Exception as error:
            await self._until_first(lane, batch)
            if not batch.is_settled:
                await self._lose(lane, batch, error)

    async def _send_until_settled(self, lane: _Lane, batch: Batch) -> None:
        level = self._zstd_level if batch.size_bytes >= ZSTD_FROM_BYTES else None
        body, count = b"", 0
        path = path_of("topics", lane.topic, "records")
        retrying = self._caller.retrying(is_known_again=True)
        while not batch.is_settled:
            if count != len(batch.records):
                body, count = batch.encode(self._clock.wall_us(), level), len(batch.records)
            sent = _Sent(lane.numbers.of(batch)[0], lane.numbers.is_first(batch))
            request = self._caller.endpoint.request(
                "POST",
                path,
                body=body,
                content_type=BATCH,
                headers=lane.numbers.headers(batch) | batch.headers,
            )
            try:
                offset = self._first_offset(await self._caller.once(request, lane.sending))
            except ApplianceError as error:
                if not batch.is_settled:
                    await self._refused(lane, batch, error, retrying, sent)
            else:
                if not batch.is_settled:
                    lane.numbers.stored(batch)
                    await self._settled(lane, batch, None, offset)

    def _first_offset(self, answer: Answer) -> int | None:
        """Raises ApplianceError."""
        try:
            return msgspec.json.decode(answer.body, type=_Produced).offset
        except msgspec.DecodeError as error:
            address = self._caller.endpoint.address
            raise no_answer(address, "what it says cannot be read") from error

    async def _refused(
        self, lane: _Lane, batch: Batch, error: ApplianceError, retrying: Retrying, sent: _Sent
    ) -> None:
        """Wait until it makes sense to send it again, or settle it."""
        pause_s = retrying.pause_s(error, self._clock.monotonic_s())
        if pause_s is not None:
            await self._clock.sleep(pause_s)
            return
        await self._until_first(lane, batch)
        if batch.is_settled:
            return
        epoch, seq = lane.numbers.of(batch)
        if epoch != sent.epoch:
            retrying.in_doubt = False  # nothing of the epoch before is stored behind a hole
        elif not retrying.in_doubt and self._drops(batch, error):
            lane.numbers.begin_again()  # without what the topic does not take
        elif error.code != "sequence_gap" or (sent.was_first and (seq == 0 or retrying.in_doubt)):
            await self._fail(lane, batch, retrying.last_word(error))
        elif sent.was_first:
            lane.numbers.begin_again()  # the appliance has forgotten this producer

    def _drops(self, batch: Batch, error: ApplianceError) -> bool:
        """Whether the batch was refused because of some of its records; only these fail."""
        most = error.problem.get("max_record_bytes")
        if error.code != "record_too_large" or not isinstance(most, int):
            return False
        if not batch.drop_larger(most, error):
            return False
        self._failure = self._failure or error
        return True

    async def _until_first(self, lane: _Lane, batch: Batch) -> None:
        """Only the first batch may fail: the meaning of an answer depends on the batches before
        it."""
        async with lane.turn:
            await lane.turn.wait_for(lambda: batch.is_settled or lane.numbers.is_first(batch))

    async def _fail(self, lane: _Lane, batch: Batch, error: ApplianceError) -> None:
        if error.side_effects == "none":
            lane.numbers.refused(batch)
            await self._settled(lane, batch, error, None)
        else:
            await self._lose(lane, batch, error)

    async def _lose(self, lane: _Lane, batch: Batch, error: Exception) -> None:
        """It may be stored, and what is behind it, too."""
        for lost in lane.numbers.lost(batch):
            await self._settled(lane, lost, error, None)

    async def _settled(
        self, lane: _Lane, batch: Batch, error: Exception | None, offset: int | None
    ) -> None:
        if error is None:
            batch.stored(offset)
        else:
            self._failure = self._failure or error
            batch.failed(error)
        self.buffer.settled(batch)
        lane.changed.set()
        async with lane.turn:
            lane.turn.notify_all()

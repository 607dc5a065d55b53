"""The client for programs without an event loop: it runs the asynchronous one in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, Protocol, Self, TypeVar

from seb_appliance import limits
from seb_appliance.client import reading
from seb_appliance.client.administering import PATIENCE_S as ADMIN_PATIENCE_S
from seb_appliance.client.administering import AsyncAdmin
from seb_appliance.client.batching import Delivery
from seb_appliance.client.consuming import (
    LEASE_TTL_MS,
    PATIENCE_S,
    AsyncConsumer,
    CommitMode,
)
from seb_appliance.client.producing import AsyncProducer, Compression
from seb_appliance.client.reading import Ask, RecordKey
from seb_appliance.client.records import Data, Headers, Record, RecordBatch, Value
from seb_appliance.client.transacting import Transaction


class Closes(Protocol):
    async def close(self) -> None: ...


T = TypeVar("T")
Inner = TypeVar("Inner", bound=Closes)
P = ParamSpec("P")
STOP_S: Final = 10.0


class LoopThread:
    """An event loop that runs until `stop`. A daemon: it keeps no process alive."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="seb-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)  # others may wait for what these end with
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """`work` goes on, on that loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to, on that loop. An interrupt here cancels it there."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_S)


class Blocking(Generic[Inner]):
    """Holds an asynchronous object that was made on its loop."""

    def __init__(self, make: Callable[[], Inner]) -> None:
        async def made() -> Inner:
            return make()

        self._thread = LoopThread()
        try:
            self._inner = self._thread.wait_for(made())
        except BaseException:
            self._thread.stop()
            raise

    def close(self) -> None:
        """As of the object within; then the thread ends."""
        if self._thread.is_alive:
            try:
                self._wait_for(self._inner.close())
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.wait_for(work)


def blocking(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[Inner], P], T]:
    """The method that waits for `method` of the object within."""

    @functools.wraps(method)
    def waits(self: Blocking[Inner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait_for(method(self._inner, *args, **kwargs))

    return waits


class Producer(Blocking[AsyncProducer]):
    """Like AsyncProducer, but blocking; it sends in its own thread. Several threads may use it at
    once.

    `with` sends everything before it ends, also after an exception or Ctrl-C.
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
    ) -> None:
        """Raises ConfigurationError."""
        super().__init__(
            functools.partial(
                AsyncProducer,
                url,
                api_key,
                linger_ms=linger_ms,
                batch_bytes=batch_bytes,
                buffer_bytes=buffer_bytes,
                compression=compression,
                patience_s=patience_s,
            )
        )

    def send(
        self,
        topic: str,
        value: Value,
        *,
        key: Data | None = None,
        headers: Headers | None = None,
        timestamp: datetime.datetime | None = None,
        delay: datetime.datetime | datetime.timedelta | None = None,
    ) -> Delivery:
        """Buffer a record; `result()` of the returned delivery waits for its offset. `value`: bytes
        or text; None for a tombstone; a dict, list, number or bool is stored as JSON. `timestamp`:
        default now. `delay`: when, or how much later, queues hand it out. Blocks while the buffer
        is full. Raises BadRecordError, ClosedError."""
        producer = self._inner
        record = producer.record(topic, value, key, headers, timestamp, delay)
        while (delivery := producer.add(topic, record)) is None:
            room = threading.Event()
            producer.buffer.when_room(room.set)
            room.wait()
        return delivery

    flush = blocking(AsyncProducer.flush)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """`with`: as AsyncProducer.transaction."""
        with self._inner.open_transaction() as transaction:
            yield transaction
            self._wait_for(self._inner.store(transaction))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._wait_for(self._inner.__aexit__(kind, error, trace))
        finally:
            self._thread.stop()


class Consumer(Blocking[AsyncConsumer]):
    """Like AsyncConsumer, but blocking; it reads ahead in its own thread. For one thread at a
    time."""

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
    ) -> None:
        """Raises ConfigurationError."""
        super().__init__(
            functools.partial(
                AsyncConsumer,
                url,
                api_key,
                topics,
                group=group,
                offset=offset,
                commit=commit,
                lease=lease,
                lease_ttl_ms=lease_ttl_ms,
                view=view,
                follow=follow,
                prefetch=prefetch,
                max_bytes=max_bytes,
                refresh_s=refresh_s,
                patience_s=patience_s,
            )
        )

    commit = blocking(AsyncConsumer.commit)
    latest = blocking(AsyncConsumer.latest)

    def keys(
        self, topic: str, *, prefix: Data = b"", after: Data | None = None, fresh: bool = False
    ) -> Iterator[RecordKey]:
        """As AsyncConsumer.keys."""
        return self._each(reading.keys(self._inner.caller, topic, prefix, after, fresh=fresh))

    def history(
        self, topic: str, key: Data, *, before: int | None = None, fresh: bool = False
    ) -> Iterator[Record]:
        """As AsyncConsumer.history."""
        return self._each(reading.history(self._inner.caller, topic, key, before, fresh=fresh))

    def _each(self, ask: Ask[T]) -> Iterator[T]:
        following: Ask[T] | None = ask
        while following is not None:
            items, following = self._wait_for(following())
            yield from items

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """`with`: as AsyncConsumer.transaction."""
        with self._inner.open_transaction() as transaction:
            yield transaction
            self._wait_for(self._inner.store(transaction))

    def next_batch(self) -> RecordBatch | None:
        """The next batch with records; None if everything was read (`follow=False`). After Ctrl-C
        the consumer cannot be used any more. Raises as AsyncConsumer does."""
        try:
            return self._wait_for(self._inner.next_batch())
        except Exception:
            raise
        except BaseException:
            self._inner.abandon()
            raise

    def batches(self) -> Iterator[RecordBatch]:
        """`next_batch` until there is none."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def __iter__(self) -> Iterator[Record]:
        """The records one by one. `commit()` then commits up to and including the last one."""
        for batch in self.batches():
            yield from self._inner.one_by_one(batch)


class Admin(Blocking[AsyncAdmin]):
    """Like AsyncAdmin, but blocking. Several threads may use it at once."""

    def __init__(self, url: str, api_key: str, *, patience_s: float = ADMIN_PATIENCE_S) -> None:
        """Raises ConfigurationError."""
        super().__init__(functools.partial(AsyncAdmin, url, api_key, patience_s=patience_s))

    create_topic = blocking(AsyncAdmin.create_topic)
    topics = blocking(AsyncAdmin.topics)
    topic = blocking(AsyncAdmin.topic)
    change_topic = blocking(AsyncAdmin.change_topic)
    trim_topic = blocking(AsyncAdmin.trim_topic)
    reopen_topic = blocking(AsyncAdmin.reopen_topic)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    groups = blocking(AsyncAdmin.groups)
    group = blocking(AsyncAdmin.group)
    commit = blocking(AsyncAdmin.commit)
    reset_group = blocking(AsyncAdmin.reset_group)
    delete_group = blocking(AsyncAdmin.delete_group)
    queues = blocking(AsyncAdmin.queues)
    queue = blocking(AsyncAdmin.queue)
    set_queue = blocking(AsyncAdmin.set_queue)
    reset_queue = blocking(AsyncAdmin.reset_queue)
    redrive_queue = blocking(AsyncAdmin.redrive_queue)
    delete_queue = blocking(AsyncAdmin.delete_queue)
    inlets = blocking(AsyncAdmin.inlets)
    inlet = blocking(AsyncAdmin.inlet)
    set_inlet = blocking(AsyncAdmin.set_inlet)
    delete_inlet = blocking(AsyncAdmin.delete_inlet)
    subscriptions = blocking(AsyncAdmin.subscriptions)
    set_subscription = blocking(AsyncAdmin.set_subscription)
    delete_subscription = blocking(AsyncAdmin.delete_subscription)
    api_keys = blocking(AsyncAdmin.api_keys)
    api_key = blocking(AsyncAdmin.api_key)
    create_api_key = blocking(AsyncAdmin.create_api_key)
    change_api_key = blocking(AsyncAdmin.change_api_key)
    rotate_api_key = blocking(AsyncAdmin.rotate_api_key)
    revoke_api_key = blocking(AsyncAdmin.revoke_api_key)
    status = blocking(AsyncAdmin.status)

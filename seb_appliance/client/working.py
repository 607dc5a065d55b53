"""Workers: take records of a queue, hand them to a handler, and tell the queue what came of it."""

from __future__ import annotations

import asyncio
import functools
import random as random_numbers
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.client.failures import ApplianceError
from seb_appliance.client.records import NO_HEADERS
from seb_appliance.client.transacting import Transaction
from seb_appliance.client.transport import Caller, Endpoint
from seb_appliance.clock import Clock, SystemClock
from seb_appliance.errors import LeaseEndedError

PATIENCE_S: Final = 60.0
LEASE_MS: Final = 30_000
_WAIT_MS: Final = 20_000
_RENEWALS: Final = 3  # of a lease, in the time that it has


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A record that a worker was given, for the `attempt`-th time. `value` None: a tombstone."""

    queue: str
    topic: str
    offset: int
    timestamp: str
    attempt: int
    first_delivered: str
    token: str
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = NO_HEADERS


class RetryLater(Exception):  # noqa: N818 - what a handler says, and no error
    """Raised by a handler: hand the record out again, after `delay_ms` or as the queue's rule
    says. Any other exception means the same, without a delay of its own."""

    def __init__(self, delay_ms: int | None = None) -> None:
        super().__init__(delay_ms)
        self.delay_ms = delay_ms


class Reject(Exception):  # noqa: N818 - the same
    """Raised by a handler: the record is of no use. It becomes a dead letter with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason[: limits.QUEUE_REASON_CHARACTERS_MAX]


class _Taken(msgspec.Struct):
    """With `values` base64."""

    delivery: str
    attempt: int
    first_delivered: str
    topic: str
    offset: int
    timestamp: str
    key_base64: bytes | None = None
    value_base64: bytes | None = None
    headers_base64: dict[str, bytes] = {}


class _TakenAnswer(msgspec.Struct):
    records: list[_Taken]


_decode: Final = msgspec.json.Decoder(_TakenAnswer).decode


class AsyncWorker:
    """Calls `handler` with each record, up to `concurrency` at a time. A record is acknowledged
    when the handler returns; see RetryLater and Reject for what it may raise.

    The lease of a record is renewed while its handler runs. A record may come more than once: the
    handler must be idempotent. Acknowledgements that are ready together are sent together.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        queue: str,
        handler: Callable[[Delivery], Awaitable[object]],
        *,
        concurrency: int = 8,
        lease_ms: int = LEASE_MS,
        follow: bool = True,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
        random: Callable[[], float] = random_numbers.random,
        on_wait: Callable[[ApplianceError | None], None] = lambda _: None,
    ) -> None:
        """`follow` False: `run` returns when nothing waits. `on_wait`: as of Caller. Raises
        ConfigurationError."""
        self._queue = queue
        self._follow = follow
        self._handler = handler
        self._concurrency = min(concurrency, limits.DELIVERIES_PER_REQUEST_MAX)
        self._lease_ms = lease_ms
        self._clock = clock or SystemClock()
        self._caller = Caller(
            Endpoint(url, api_key),
            self._clock,
            random,
            connections=4,
            patience_s=patience_s,
            on_wait=on_wait,
        )
        self._running: dict[str, asyncio.Task[None]] = {}  # by token
        self._done: list[str] = []  # to be acknowledged
        self._acknowledging: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[list[Delivery]] | None = None
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None

    def transaction(self) -> Transaction:
        """For the results of one record: a handler that returns it has its record acknowledged in
        the same transaction. Results are stored once, however often the record comes."""
        return Transaction(self._clock.wall_us)

    def stop(self) -> None:
        """Take nothing more: `run` returns when the handlers that run are done."""
        self._stopping.set()
        if self._taking is not None:
            self._taking.cancel()

    async def run(self) -> None:
        """Work until `stop`. Raises ApplianceError when the appliance refuses, or is away for
        longer than `patience_s`; handlers that run are waited for."""
        keeping = asyncio.create_task(self._keep_leases())
        try:
            while not self._stopping.is_set():
                taken = await self._take()
                if not (taken or self._follow or self._running):
                    break
                for delivery in taken:
                    task = asyncio.create_task(self._work(delivery))
                    self._running[delivery.token] = task
                idles = not (taken or self._follow)
                while self._running and (idles or len(self._running) >= self._concurrency):
                    idles = False
                    await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
            await self._drain()
        finally:
            keeping.cancel()
            await self._drain()
            self._caller.close()
        if self._failure is not None:
            raise self._failure

    async def _drain(self) -> None:
        while self._running or self._acknowledging is not None:
            tasks = [*self._running.values()]
            if self._acknowledging is not None:
                tasks.append(self._acknowledging)
            await asyncio.wait(tasks)

    async def _take(self) -> list[Delivery]:
        self._taking = asyncio.create_task(self._ask_for_records())
        try:
            return await self._taking
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
            return []
        finally:
            self._taking = None

    async def _ask_for_records(self) -> list[Delivery]:
        asked = {
            "max": self._concurrency - len(self._running),
            "wait_ms": _WAIT_MS if self._follow else 0,
            "lease_ms": self._lease_ms,
            "values": "base64",
        }
        # A take that was not answered costs no more than a lease.
        answer = await self._send("take", asked)
        return [
            Delivery(
                self._queue,
                one.topic,
                one.offset,
                one.timestamp,
                one.attempt,
                one.first_delivered,
                one.delivery,
                one.key_base64,
                one.value_base64,
                one.headers_base64,
            )
            for one in _decode(answer).records
        ]

    async def _work(self, delivery: Delivery) -> None:
        try:
            try:
                done = await self._handler(delivery)
            except RetryLater as later:
                body = {} if later.delay_ms is None else {"delay_ms": later.delay_ms}
                await self._end("retry", delivery.token, body)
            except Reject as reject:
                await self._end("reject", delivery.token, {"reason": reject.reason})
            except Exception:
                await self._end("retry", delivery.token, {})
                raise
            else:
                if isinstance(done, Transaction):
                    await self._store(done, delivery.token)
                else:
                    self._acknowledge(delivery.token)
        except ApplianceError as error:
            self._fail(error)
        except Exception as error:
            # The record is handed out again; whoever runs the program should hear why.
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"the handler of queue {self._queue} failed", "exception": error}
            )
        finally:
            del self._running[delivery.token]

    async def _store(self, transaction: Transaction, token: str) -> None:
        """Raises ApplianceError."""
        try:
            ack = {"queue": self._queue, "deliveries": [token]}
            await transaction.store(self._caller, ack=ack)
        except ApplianceError as error:
            transaction.give_up(error)
            if error.code != LeaseEndedError.code:  # else the record is another worker's by now
                raise

    def _acknowledge(self, token: str) -> None:
        self._done.append(token)
        if self._acknowledging is None:
            self._acknowledging = asyncio.create_task(self._send_acknowledgements())

    async def _send_acknowledgements(self) -> None:
        try:
            while self._done:
                tokens = self._done[: limits.DELIVERIES_PER_REQUEST_MAX]
                del self._done[: len(tokens)]
                await self._send("ack", {"deliveries": tokens})
        except ApplianceError as error:
            self._fail(error)
        finally:
            self._acknowledging = None

    async def _keep_leases(self) -> None:
        while True:
            await self._clock.sleep(self._lease_ms / 1_000 / _RENEWALS)
            if tokens := list(self._running):
                try:
                    body = {"deliveries": tokens, "lease_ms": self._lease_ms}
                    await self._send("extend", body)
                except ApplianceError as error:
                    self._fail(error)

    async def _end(self, verb: str, token: str, more: dict[str, Any]) -> None:
        await self._send(verb, {"deliveries": [token], **more})

    async def _send(self, verb: str, body: dict[str, Any]) -> bytes:
        """Each is safe to repeat. Raises ApplianceError."""
        path = path_of("queues", self._queue, verb)
        content = msgspec.json.encode(body)
        request = self._caller.endpoint.request("POST", path, body=content)
        return (await self._caller.ask(request, is_known_again=True)).body

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop()


class Worker:
    """Like AsyncWorker, with a handler that blocks: each call has a thread. `run` blocks, too;
    `stop` may be called from any thread or from a signal handler."""

    def __init__(
        self,
        url: str,
        api_key: str,
        queue: str,
        handler: Callable[[Delivery], object],
        *,
        concurrency: int = 8,
        lease_ms: int = LEASE_MS,
        follow: bool = True,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._handler = handler
        self._make = functools.partial(
            AsyncWorker,
            url,
            api_key,
            queue,
            self._in_thread,
            concurrency=concurrency,
            lease_ms=lease_ms,
            follow=follow,
            patience_s=patience_s,
        )
        self._stopping = threading.Event()
        self._inner: tuple[asyncio.AbstractEventLoop, AsyncWorker] | None = None

    def transaction(self) -> Transaction:
        """As of AsyncWorker."""
        return Transaction(SystemClock().wall_us)

    def run(self) -> None:
        """As of AsyncWorker. Raises ConfigurationError, too."""
        asyncio.run(self._run())

    def stop(self) -> None:
        self._stopping.set()
        if self._inner is not None:
            loop, worker = self._inner
            loop.call_soon_threadsafe(worker.stop)

    async def _run(self) -> None:
        worker = self._make()
        self._inner = asyncio.get_running_loop(), worker
        try:
            if not self._stopping.is_set():
                await worker.run()
        finally:
            self._inner = None

    async def _in_thread(self, delivery: Delivery) -> object:
        return await asyncio.to_thread(self._handler, delivery)

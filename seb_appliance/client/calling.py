"""Connections to one appliance on an asyncio event loop: a bounded pool of kept ones."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from seb_appliance import limits
from seb_appliance.client.exchange import (
    Answer,
    AnswerReader,
    Endpoint,
    MalformedAnswerError,
    Request,
)
from seb_appliance.client.failures import ApplianceError, no_answer, refusal, unreachable
from seb_appliance.clock import Clock

# Whether a request is sent again, and when: decided here for every part of the client.


PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 5.0


class Retrying:
    """The attempts at one request, which began at `now_s`.

    `is_known_again`: doing it twice is doing it once (a read, an idempotent producer's request), so
    it is sent again also when it may have been done. `random`: 0 to 1, so that many clients do not
    come back at once.
    """

    def __init__(
        self, now_s: float, patience_s: float, random: Callable[[], float], *, is_known_again: bool
    ) -> None:
        self._give_up_s = now_s + patience_s
        self._random = random
        self._is_known_again = is_known_again
        self._pause_s = PAUSE_S_MIN
        self.in_doubt = False

    def pause_s(self, error: ApplianceError, now_s: float) -> float | None:
        """How long to wait before the next attempt; None: give up, with `last_word` of it."""
        self.in_doubt = self.in_doubt or error.side_effects == "unknown"
        if not error.retryable or not (error.harmless or self._is_known_again):
            return None
        pause_s = max(self._pause_s * (0.5 + self._random() / 2), error.retry_after_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return pause_s if now_s + pause_s <= self._give_up_s else None

    def last_word(self, error: ApplianceError) -> ApplianceError:
        """What is raised: no refusal can say that an attempt before it, without an answer, did
        nothing."""
        if self.in_doubt and error.side_effects == "none":
            return error.in_doubt()
        return error


CONNECT_S: Final = 10.0
ANSWER_S: Final = 120.0  # longer than a producer waits for the bucket, and than any long poll
READ_BYTES: Final = 256 * limits.KIB
BUFFER_BYTES: Final = 1 * limits.MIB


class Connection:
    """One at a time asks on it. Good until `ask` raises."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_open(self) -> bool:
        return (
            self._streams is not None
            and not self._streams[0].at_eof()
            and not self._streams[1].is_closing()
        )

    async def open(self) -> None:
        """Raises ApplianceError `unreachable`."""
        tls = ssl.create_default_context() if self._endpoint.secure else None
        host, port = self._endpoint.host, self._endpoint.port
        try:
            async with asyncio.timeout(CONNECT_S):
                self._streams = await asyncio.open_connection(
                    host, port, ssl=tls, limit=BUFFER_BYTES
                )
        except (OSError, UnicodeError) as error:  # TimeoutError is one; a host may be no name
            raise unreachable(self._endpoint.address, _reason(error)) from error
        opened: socket.socket = self._streams[1].get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def send(self, request: Request) -> None:
        """All of it is on its way. Raises ApplianceError `no_answer`."""
        _, writer = self._both()
        try:
            async with asyncio.timeout(ANSWER_S):
                writer.writelines((request.head, request.body))
                await writer.drain()
        except OSError as error:
            raise no_answer(self._endpoint.address, _reason(error)) from error

    async def receive(self) -> Answer:
        """Whatever it says. Raises ApplianceError `no_answer`."""
        reader, _ = self._both()
        parser = AnswerReader()
        answer: Answer | None = None
        try:
            async with asyncio.timeout(ANSWER_S):
                while answer is None:
                    data = await reader.read(READ_BYTES)
                    answer = parser.feed(data) if data else parser.end()
        except (OSError, MalformedAnswerError) as error:
            raise no_answer(self._endpoint.address, _reason(error)) from error
        if not answer.keeps:
            self.close()
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None

    def _both(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._streams is not None, "open it first"
        return self._streams


class Caller:
    """Asks one appliance, over at most `connections` at once. Use it on one event loop.

    `waits_for_first` False: nobody is waited for until somebody has answered once: a wrong address
    is told at once. `version`: of the appliance that answered last, "" before that.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        random: Callable[[], float],
        *,
        connections: int,
        patience_s: float,
        waits_for_first: bool = True,
    ) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self.version = ""
        self._random = random
        self._patience_s = patience_s
        self._waits_for_first = waits_for_first
        self._room = asyncio.Semaphore(connections)
        self._idle: list[Connection] = []

    def retrying(self, *, is_known_again: bool) -> Retrying:
        return Retrying(
            self.clock.monotonic_s(), self._patience_s, self._random, is_known_again=is_known_again
        )

    async def once(self, request: Request, sent: asyncio.Lock | None = None) -> Answer:
        """One attempt: a success. Raises ApplianceError. `sent`: held until the request has left,
        so that those who share it send in the order in which they came."""
        async with contextlib.AsyncExitStack() as ordered:
            if sent is not None:
                await ordered.enter_async_context(sent)
            async with self._connection() as connection:
                await connection.send(request)
                await ordered.aclose()
                answer = await connection.receive()
        self.version = answer.headers.get("seb-version", self.version)
        if not 200 <= answer.status < 300 or "seb-version" not in answer.headers:
            raise refusal(self.endpoint.address, answer.status, answer.headers, answer.body)
        return answer

    async def ask(self, request: Request, *, is_known_again: bool | None = None) -> Answer:
        """A success, asked for again while that is safe. `is_known_again` None: if it is a read.
        Raises ApplianceError."""
        known = request.is_read if is_known_again is None else is_known_again
        retrying = self.retrying(is_known_again=known)
        while True:
            try:
                return await self.once(request)
            except ApplianceError as error:
                pause_s = retrying.pause_s(error, self.clock.monotonic_s())
                open_question = retrying.in_doubt and not request.is_read
                if pause_s is None or not (self._may_wait or open_question):
                    last = error if request.is_read else retrying.last_word(error)
                    raise last from error
            await self.clock.sleep(pause_s)

    async def get(self, path: str, query: Mapping[str, object] | None = None) -> Answer:
        return await self.ask(self.endpoint.request("GET", path, query))

    @property
    def _may_wait(self) -> bool:
        return self._waits_for_first or self.version != ""

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        async with self._room:
            connection = await self._opened()
            try:
                yield connection
            except BaseException:
                connection.close()  # half an answer may be on its way
                raise
            if connection.is_open:
                self._idle.append(connection)

    async def _opened(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        connection = Connection(self.endpoint)
        await connection.open()
        return connection


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

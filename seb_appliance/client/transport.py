"""Requests to one appliance over HTTP/1.1: built, sent on kept connections, read, and repeated."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from seb_appliance import __version__, errors, limits
from seb_appliance.addresses import parse_url
from seb_appliance.client.failures import (
    ApplianceError,
    ConfigurationError,
    no_answer,
    refusal,
    unreachable,
)
from seb_appliance.clock import Clock

HEAD_BYTES_MAX: Final = 64 * limits.KIB
BODY_BYTES_MAX: Final = 256 * limits.MIB
_DIGITS_MAX: Final = len(str(BODY_BYTES_MAX))
_END_OF_HEAD: Final = b"\r\n\r\n"


class MalformedAnswerError(Exception):
    """What came is not an HTTP/1.1 answer, or ended too early."""


class Answer(NamedTuple):
    """`headers`: names in lower case. `keeps`: whether the connection can be used again."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    keeps: bool

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def number(self, header: str) -> int:
        return int(self.headers[header])


class Request(NamedTuple):
    """`head` ends with its empty line. `what`: for people. `is_read`: it changes nothing."""

    head: bytes
    body: bytes
    what: str
    is_read: bool


class Endpoint:
    """The address of an appliance, and the API key to use. `agent`: the User-Agent.

    Raises ConfigurationError for an invalid URL or API key.
    """

    def __init__(self, url: str, api_key: str, agent: str = "seb-client") -> None:
        try:
            parts = parse_url(url)
        except errors.ConfigurationError as error:
            raise ConfigurationError(error.detail) from error
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key or not api_key:
            raise ConfigurationError("the API key is invalid: it must be seb_… and nothing else")
        assert parts.hostname is not None
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.address = parts.geturl()
        self._path = parts.path.rstrip("/")
        self._common = (
            f"Host: {parts.netloc}\r\nAuthorization: Bearer {api_key}\r\n"
            f"User-Agent: {agent}/{__version__}\r\n"
        )

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        """`path`: from /v1 on, quoted (`path_of`). What is None in `query` is left out."""
        target = self._path + path
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            target += f"?{urlencode(given)}"
        lines = f"{method} {target} HTTP/1.1\r\n{self._common}"
        for name, value in (headers or {}).items():
            lines += f"{name}: {value}\r\n"
        if body is not None:
            lines += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        elif method != "GET":
            lines += "Content-Length: 0\r\n"
        return Request(
            f"{lines}\r\n".encode("ascii"), body or b"", f"{method} {path}", method == "GET"
        )


class AnswerReader:
    """One answer, from the bytes as they come."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._body: _Body | None = None
        self._status = 0
        self._headers: dict[str, str] = {}
        self._keeps = False

    def feed(self, data: bytes) -> Answer | None:
        """The answer once it is whole. Raises MalformedAnswerError."""
        while self._body is None:
            self._head += data
            end = self._head.find(_END_OF_HEAD)
            if end < 0:
                if len(self._head) > HEAD_BYTES_MAX:
                    raise MalformedAnswerError("the headers of the answer are too long")
                return None
            data = bytes(self._head[end + len(_END_OF_HEAD) :])
            self._read_head(bytes(self._head[:end]))
            if self._status < 200:  # 100 Continue and the like come before the answer
                self._head, self._headers, self._body = bytearray(), {}, None
        return self._answer() if self._body.feed(data) else None

    def end(self) -> Answer:
        """The connection ended: the answer, if only that could end it. Raises
        MalformedAnswerError."""
        if self._body is None or not self._body.ends_with_connection:
            raise MalformedAnswerError("the connection was closed")
        return self._answer()

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise MalformedAnswerError("the answer is not HTTP/1.1")
        self._status = int(rest[:3])
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise MalformedAnswerError("a header has no name")
            self._headers[name.lower()] = value.strip()
        self._keeps = (
            version == "HTTP/1.1" and self._headers.get("connection", "").lower() != "close"
        )
        self._body = self._body_of(self._status)

    def _body_of(self, status: int) -> _Body:
        if status in (204, 304) or status < 200:
            return _Body(0)
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            return _Chunks()
        said = self._headers.get("content-length")
        if said is None:
            self._keeps = False
            return _Body(None)
        if not said.isdecimal() or len(said) > _DIGITS_MAX or int(said) > BODY_BYTES_MAX:
            raise MalformedAnswerError(f"its length is {said[:100]!r}")
        return _Body(int(said))

    def _answer(self) -> Answer:
        assert self._body is not None
        return Answer(self._status, self._headers, self._body.whole(), self._keeps)


class _Body:
    """`length` None: up to the end of the connection."""

    def __init__(self, length: int | None) -> None:
        self._length = length
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def ends_with_connection(self) -> bool:
        return self._length is None

    def feed(self, data: bytes) -> bool:
        """Whether it is whole. Raises MalformedAnswerError."""
        if data:
            self._parts.append(data)
            self._size += len(data)
        if self._size > (BODY_BYTES_MAX if self._length is None else self._length):
            raise MalformedAnswerError("the answer is longer than its Content-Length")
        return self._size == self._length

    def whole(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class _Chunks(_Body):
    """Transfer-Encoding: chunked. Trailers are read over."""

    def __init__(self) -> None:
        super().__init__(0)
        self._rest = bytearray()
        self._is_last = False

    def feed(self, data: bytes) -> bool:
        self._rest += data
        while not self._is_last:
            end = self._rest.find(b"\r\n")
            if end < 0:
                if len(self._rest) > HEAD_BYTES_MAX:
                    raise MalformedAnswerError("a chunk has no length")
                return False
            size = _chunk_size(bytes(self._rest[:end]))
            if size == 0:
                self._is_last = True
                break
            if len(self._rest) < end + 2 + size + 2:
                return False
            self._parts.append(bytes(self._rest[end + 2 : end + 2 + size]))
            self._size += size
            if self._size > BODY_BYTES_MAX:
                raise MalformedAnswerError("it is too long")
            del self._rest[: end + 2 + size + 2]
        # "0\r\n", then perhaps trailers, then an empty line.
        return self._rest.endswith(_END_OF_HEAD)


def _chunk_size(line: bytes) -> int:
    try:
        size = int(line.partition(b";")[0].strip(), 16)
    except ValueError as error:
        raise MalformedAnswerError("a chunk has no length") from error
    if not 0 <= size <= BODY_BYTES_MAX:
        raise MalformedAnswerError("a chunk is too long")
    return size


PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 5.0
QUIET_S: Final = 1.0  # a wait that is shorter is not told


class Retrying:
    """The attempts at one request; the first began at `now_s`.

    `is_known_again`: the request is idempotent (a read, an idempotent producer's request), so it is
    repeated even if it may have been executed. `random`: 0 to 1, so that many clients do not retry
    at the same time.
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
        """How long to wait before the next attempt; None: give up and raise `last_word`."""
        self.in_doubt = self.in_doubt or error.side_effects == "unknown"
        if not error.retryable or not (error.harmless or self._is_known_again):
            return None
        pause_s = max(self._pause_s * (0.5 + self._random() / 2), error.retry_after_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return pause_s if now_s + pause_s <= self._give_up_s else None

    def last_word(self, error: ApplianceError) -> ApplianceError:
        """The error to raise. After an attempt without an answer, a refusal does not prove that
        nothing was executed."""
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
                # From Python 3.12 on, asyncio never takes empty bytes out of its buffer: it would
                # call the kernel without end, and never close the socket.
                writer.writelines(part for part in (request.head, request.body) if part)
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
    """Sends requests to one appliance, over at most `connections` connections. Use it on one event
    loop.

    With `waits_for_first` False, an unreachable address fails immediately until it has answered
    once. `version`: of the appliance that answered last, "" before that. `on_wait` is told why no
    request succeeds, if that takes longer than QUIET_S, and None when one does again.
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
        on_wait: Callable[[ApplianceError | None], None] = lambda _: None,
    ) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self.version = ""
        self._random = random
        self._patience_s = patience_s
        self._waits_for_first = waits_for_first
        self._on_wait = on_wait
        self._waits_since_s: float | None = None
        self._wait_is_told = False
        self._room = asyncio.Semaphore(connections)
        self._idle: list[Connection] = []

    def retrying(self, *, is_known_again: bool) -> Retrying:
        return Retrying(
            self.clock.monotonic_s(), self._patience_s, self._random, is_known_again=is_known_again
        )

    async def once(self, request: Request, sent: asyncio.Lock | None = None) -> Answer:
        """One attempt; returns a successful answer. Raises ApplianceError. `sent`: a lock that is
        held until the request is sent, so that its users send in order."""
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
        self._waits_since_s = None
        if self._wait_is_told:
            self._wait_is_told = False
            self._on_wait(None)
        return answer

    async def ask(self, request: Request, *, is_known_again: bool | None = None) -> Answer:
        """A successful answer; retries while that is safe. `is_known_again` None: only reads are
        idempotent. Raises ApplianceError."""
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
                self._note_wait(error, pause_s)
            await self.clock.sleep(pause_s)

    def _note_wait(self, error: ApplianceError, pause_s: float) -> None:
        now_s = self.clock.monotonic_s()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        if not self._wait_is_told and now_s + pause_s > self._waits_since_s + QUIET_S:
            self._wait_is_told = True
            self._on_wait(error)

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

"""One HTTP request to a receiver that nobody here trusts: where it goes, how long it may take, and
how much of its answer is read.

The name of a host is resolved once for each connection, each address is checked, and the connection
goes to a checked address: what the name means a moment later does not matter (DNS rebinding). A
redirect is an answer like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import httptools

from seb_appliance import limits
from seb_appliance.broker.shares import OPERATOR, Shares
from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.addresses import (
    Network,
    Target,
    is_address,
    is_listed,
    is_permitted,
)
from seb_appliance.protocols.subscriptions.connections import Connection, IdleConnections

Resolve = Callable[[str, int], list[str]]
_READ_BYTES: Final = 4 * limits.KIB
_FINAL_STATUS_MIN: Final = 200  # what is lower comes before the answer
_ANSWER_BYTES_MAX: Final = push_limits.ANSWER_HEAD_BYTES_MAX + push_limits.ANSWER_BODY_BYTES_MAX


class DeliveryError(Exception):
    """There was no answer. The text is for the owner of the subscription."""


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host; it blocks. Raises OSError, UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


@dataclass
class Answered:
    """What came of an answer: enough to know its status. `body`: its beginning."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    is_whole: bool = False


class Sender:
    """Sends requests for all subscriptions. `networks`: which may be sent to although they are not
    public. `lookups` counts names that are being resolved: a name server that does not answer holds
    a thread for long, and is to hold up only who named it. `tls` makes the context, which reads
    files, once."""

    def __init__(
        self,
        networks: Sequence[Network],
        lookups: Shares | None = None,
        *,
        resolve: Resolve = resolve,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._networks = networks
        self._resolve = resolve
        self._tls = tls
        self._context: asyncio.Future[ssl.SSLContext] | None = None
        self._idle = IdleConnections()
        self._lookups: dict[tuple[str, int], asyncio.Future[list[str]]] = {}
        self._room = lookups
        self._freed = asyncio.Event()  # replaced whenever a lookup ends
        # Its own threads: the resolver may block for long, and others wait for the usual ones.
        self._threads = ThreadPoolExecutor(limits.PUSH_LOOKUPS_MAX, thread_name_prefix="resolve")

    def close(self) -> None:
        self._idle.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def is_listed(self, host: str) -> bool:
        """Whether the host is an address that `push_networks` names."""
        return is_listed(host, self._networks)

    def is_forbidden(self, host: str) -> bool:
        """Whether the host is an address that nothing may be sent to."""
        return is_address(host) and not is_permitted(host, self._networks)

    async def post(
        self,
        target: Target,
        head: bytes,
        body: bytes,
        timeout_s: float,
        user: str = "",
        owner: str = OPERATOR,
    ) -> Answered:
        """`head`: the lines of all headers but Host and those of the connection. `user`: whose
        connection it may use, and leaves for the next request; "" for a connection of its own.
        `owner`: of the share that a lookup takes. Raises DeliveryError."""
        lines = b"POST %b HTTP/1.1\r\nHost: %b\r\nConnection: %b\r\nContent-Length: %d\r\n" % (
            target.path.encode(),
            target.authority.encode(),
            b"keep-alive" if user else b"close",
            len(body),
        )
        answered = Answered()
        try:
            async with asyncio.timeout(timeout_s):
                await self._send((user, owner), target, (lines, head, b"\r\n", body), answered)
        except (OSError, httptools.HttpParserError) as error:  # TimeoutError is an OSError
            if not answered.status:  # else it is known what the receiver says
                raise DeliveryError(_reason(error, timeout_s)) from error
        return answered

    async def _send(
        self, by: tuple[str, str], target: Target, request: Sequence[bytes], answered: Answered
    ) -> None:
        """`by`: user and owner. Raises DeliveryError, OSError, HttpParserError."""
        user, owner = by
        idle = await self._idle.take(user, target) if user else None
        if idle is not None:
            # The receiver may close it at that moment. If it had the request, it gets it twice.
            with contextlib.suppress(ConnectionError):
                await self._exchange(user, target, idle, request, answered)
            if answered.status:
                return
        opened = await self._connect(target, owner)
        await self._exchange(user, target, opened, request, answered)

    async def _exchange(
        self,
        user: str,
        target: Target,
        connection: Connection,
        request: Sequence[bytes],
        answered: Answered,
    ) -> None:
        """Raises DeliveryError, OSError, HttpParserError."""
        transport = connection.writer.transport
        is_usable = False
        try:
            connection.writer.writelines(request)
            is_usable = await _read(connection.reader, answered)
        finally:
            if user and is_usable and not transport.get_write_buffer_size():
                self._idle.keep(user, target, connection)
            else:
                transport.abort()

    async def _connect(self, target: Target, owner: str) -> Connection:
        """Raises DeliveryError, OSError."""
        addresses = await self._addresses(target.host, target.port, owner)
        permitted = [one for one in addresses if is_permitted(one, self._networks)]
        if not permitted:
            raise DeliveryError(
                f"{target.host} is at {', '.join(addresses[:3]) or 'no address'}, which is neither "
                "public nor in push_networks"
            )
        context = await self._tls_context() if target.secure else None
        failure: OSError | None = None
        for address in permitted[: push_limits.ADDRESSES_MAX]:
            try:
                async with asyncio.timeout(push_limits.CONNECT_S):
                    reader, writer = await asyncio.open_connection(
                        address,  # a number: nothing is resolved again
                        target.port,
                        limit=push_limits.ANSWER_HEAD_BYTES_MAX,
                        ssl=context,
                        server_hostname=target.host if context is not None else None,
                    )
                    return Connection(reader, writer, asyncio.get_running_loop().time())
            except OSError as error:
                failure = error
        assert failure is not None
        raise failure

    async def _addresses(self, host: str, port: int, owner: str) -> list[str]:
        """All who ask for one name at one time wait for the same thread. Raises DeliveryError."""
        while (found := self._lookups.get((host, port))) is None:
            if self._room is not None and not self._room.try_take(owner, 1):
                await self._freed.wait()
                continue
            loop = asyncio.get_running_loop()
            found = loop.run_in_executor(self._threads, self._resolve, host, port)
            self._lookups[host, port] = found
            found.add_done_callback(partial(self._looked_up, host, port, owner))
        try:
            return list(dict.fromkeys(await asyncio.shield(found)))
        except (OSError, UnicodeError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise DeliveryError(f"the name {host} cannot be resolved ({error})") from error

    def _looked_up(
        self, host: str, port: int, owner: str, found: asyncio.Future[list[str]]
    ) -> None:
        del self._lookups[host, port]
        if self._room is not None:
            self._room.give_back(owner, 1)
        self._freed.set()
        self._freed = asyncio.Event()
        if not found.cancelled():
            found.exception()  # whoever waits has it, too; perhaps nobody does any more

    async def _tls_context(self) -> ssl.SSLContext:
        if self._context is None:
            loop = asyncio.get_running_loop()
            self._context = loop.run_in_executor(self._threads, self._tls)
        return await asyncio.shield(self._context)


async def _read(reader: asyncio.StreamReader, answered: Answered) -> bool:
    """The answer, or as much of it as is looked at. The request may still be on its way. Whether
    the connection may be used again. Raises OSError, HttpParserError, DeliveryError."""
    parts = _Parts(answered)
    parts.parser = httptools.HttpResponseParser(parts)
    size = 0
    while not answered.is_whole:
        data = await reader.read(_READ_BYTES)
        if not data and not answered.status:
            raise ConnectionResetError("the receiver closed the connection without an answer")
        parts.parser.feed_data(data)
        size += len(data)
        if not answered.status and size > push_limits.ANSWER_HEAD_BYTES_MAX:
            raise DeliveryError("the headers of the answer are too long")
        if not data or size > _ANSWER_BYTES_MAX:
            return False
    return parts.is_last


class _Parts:
    """What the parser calls."""

    parser: httptools.HttpResponseParser
    # The receiver leaves the connection open, and has sent nothing after its answer.
    is_last = False

    def __init__(self, answered: Answered) -> None:
        self._answered = answered
        self._headers: dict[str, str] = {}

    def on_message_begin(self) -> None:
        self.is_last = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= _FINAL_STATUS_MIN and not self._answered.is_whole:
            self._answered.status, self._answered.headers = status, self._headers
        self._headers = {}

    def on_body(self, data: bytes) -> None:
        if not self._answered.is_whole:
            self._answered.body += data

    def on_message_complete(self) -> None:
        self.is_last = not self._answered.is_whole and self.parser.should_keep_alive()
        self._answered.is_whole = self._answered.status > 0


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    if isinstance(error, httptools.HttpParserError):
        return "the answer is not HTTP/1.1"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

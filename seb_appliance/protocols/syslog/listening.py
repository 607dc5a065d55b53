"""The syslog port: messages become records of one topic, in the order in which they arrive.

Syslog has no acknowledgement. Over TCP and TLS the appliance stops reading while it has no room, so
that a sender keeps its messages; what it has read is stored, unless the appliance dies first. Over
UDP a message that finds no room is dropped and counted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from seb_appliance import limits
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ApiKeyView, Appended, NewRecords
from seb_appliance.errors import (
    ConfigurationError,
    OverloadedError,
    QuotaExceededError,
    SebError,
    ShareExceededError,
)
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.protocols.sockets.handshaking import Handshake, TlsListener
from seb_appliance.protocols.sockets.listening import Connections
from seb_appliance.protocols.sockets.refusals import Refusals
from seb_appliance.protocols.syslog import limits as syslog_limits
from seb_appliance.protocols.syslog.messages import AT_ONCE, BadFrameError, Framer, read_header

_log = logging.getLogger(__name__)
_NO_ROOM: Final = (OverloadedError, QuotaExceededError, ShareExceededError)
_READ_BYTES: Final = 16 * limits.KIB  # at once
_RETRY_S: Final = 0.1  # while there is no room
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Syslog:
    """`senders`: networks that may send without TLS; with `tls` every sender that it accepts may,
    and there is no UDP."""

    def __init__(
        self,
        broker: Broker,
        address: tuple[str, int],
        topic: str,
        *,
        senders: Sequence[Network] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._broker = broker
        self._address = address
        self._topic = topic
        self._senders = senders
        self._tls = tls
        grants = (Grant(operation="produce", topics=topic),)
        self._key = ApiKeyView("syslog", "syslog", grants, broker.clock.wall_us())
        self._connections = Connections(
            syslog_limits.CONNECTIONS_MAX, syslog_limits.CONNECTIONS_PER_ADDRESS_MAX
        )
        self._reading: set[asyncio.Task[Any]] = set()
        self._storing: set[asyncio.Task[Appended]] = set()
        self._counts: Counter[str] = Counter()
        self._refusals = Refusals(broker.clock, "syslog", logging.WARNING)
        self._datagrams: deque[tuple[bytes, str]] = deque()
        self._server: asyncio.Server | None = None
        self._listeners: list[TlsListener] = []
        self._shaking: set[Handshake] = set()
        self._udp: asyncio.DatagramTransport | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Raises ConfigurationError if the port cannot be used."""
        await self._broker.topics.make_on_first_use(self._topic, THE_APPLIANCE)
        host, port = self._address
        try:
            loop = asyncio.get_running_loop()
            is_plain = self._tls is None
            self._server = await loop.create_server(
                self._protocol, host, port, start_serving=is_plain
            )
            for bound in () if is_plain else self._server.sockets:
                self._listeners.append(TlsListener(bound.fileno(), self._shake))
            if is_plain:
                self._udp, _ = await loop.create_datagram_endpoint(
                    lambda: _Datagrams(self._received), local_addr=(host, self.port)
                )
        except OSError as error:
            await self.stop()
            raise ConfigurationError(f"syslog_listen {host}:{port}: {error}") from error

    async def stop(self) -> None:
        """Read nothing more, and wait until what was read is stored or refused."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for handshake in tuple(self._shaking):
            handshake.end()
        if self._server is not None:
            self._server.close()
        if self._udp is not None:
            self._udp.close()
        for task in tuple(self._reading):
            task.cancel()
        await asyncio.gather(*self._reading, *self._storing, return_exceptions=True)

    def samples(self) -> Iterator[Sample]:
        """The metrics."""
        text, count = "Open syslog connections.", self._connections.open
        yield Sample("seb_syslog_connections", text, "gauge", count)
        text = "Messages that arrived by syslog, by what became of them."
        for outcome in ("stored", "dropped", "unknown"):
            count = self._counts[outcome]
            yield Sample("seb_syslog_messages_total", text, "counter", count, {"outcome": outcome})
        text = "Syslog connections and datagrams that were refused or cut off."
        yield Sample("seb_syslog_refusals_total", text, "counter", self._counts["refused"])

    # --- TCP and TLS ---

    def _protocol(self) -> asyncio.Protocol:
        reader = asyncio.StreamReader(limit=_READ_BYTES)
        return asyncio.StreamReaderProtocol(reader, self._connected)

    def _shake(self, accepted: socket.socket, address: str) -> None:
        assert self._tls is not None
        handshake = Handshake(self._protocol, self, address)
        handshake.begin(accepted, self._tls, syslog_limits.HANDSHAKE_S_MAX)

    def shaking(self, handshake: Handshake) -> bool:
        """It counts as a connection."""
        self._shaking.add(handshake)
        has_room = self._connections.enter(handshake.address)
        if not has_room:
            self._refuse(handshake.address, "there are too many connections")
        return has_room

    def shaken(self, handshake: Handshake) -> None:
        self._shaking.discard(handshake)
        self._connections.leave(handshake.address)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = _address_of(writer)
        task = asyncio.current_task()
        assert task is not None
        self._reading.add(task)
        has_room = self._connections.enter(address)
        try:
            if self._may_send(address, has_room=has_room):
                await self._read(reader, address)
        except (BadFrameError, TimeoutError) as error:
            self._refuse(address, str(error) or "the rest of a message did not arrive")
        except OSError:
            pass  # the sender is gone
        finally:
            self._reading.discard(task)
            self._connections.leave(address)
            writer.close()

    def _may_send(self, address: str, *, has_room: bool) -> bool:
        if not self._is_known(address):
            self._refuse(address, "it is in none of the syslog_networks")
            return False
        if not has_room:
            self._refuse(address, "there are too many connections")
            return False
        return True

    def _is_known(self, address: str) -> bool:
        if self._tls is not None:
            return True
        given = ipaddress.ip_address(address)
        mapped = given.ipv4_mapped if isinstance(given, ipaddress.IPv6Address) else None
        return any((mapped or given) in network for network in self._senders)

    def _refuse(self, address: str, why: str) -> None:
        self._counts["refused"] += 1
        self._refusals.note("", address, why)

    async def _read(self, reader: asyncio.StreamReader, address: str) -> None:
        """Stores what arrives; reads no further while much of it waits to be stored."""
        framer, waiting = Framer(), _Waiting()
        while True:
            patience_s = (
                syslog_limits.UNFINISHED_S_MAX if framer.is_inside else syslog_limits.IDLE_S_MAX
            )
            async with asyncio.timeout(patience_s):
                data = await reader.read(_READ_BYTES)
            messages = framer.feed(data) if data else framer.end()
            while messages:
                await self._store_when_there_is_room(messages, address, waiting)
                messages = framer.feed()
            if not data:
                return

    async def _store_when_there_is_room(
        self, messages: list[bytes], address: str, waiting: _Waiting
    ) -> None:
        size_bytes = sum(map(len, messages))
        await waiting.room_for(size_bytes)
        while True:
            try:
                task = await self._store(messages, address, size_bytes)
                break
            except _NO_ROOM:
                await self._broker.clock.sleep(_RETRY_S)
        waiting.begin(task, size_bytes)

    # --- UDP ---

    def _received(self, datagram: bytes, address: str) -> None:
        """Those that arrive together are stored together."""
        if not self._is_known(address):
            self._counts["refused"] += 1  # not logged: the address may be anybody's
            return
        if len(self._datagrams) >= limits.RECORDS_PER_REQUEST_MAX:
            self._counts["dropped"] += 1
            return
        if not self._datagrams:
            task = asyncio.ensure_future(self._store_datagrams())
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        self._datagrams.append((datagram.rstrip(b"\r\n\0"), address))

    async def _store_datagrams(self) -> None:
        await asyncio.sleep(0)
        while self._datagrams:
            address = self._datagrams[0][1]
            messages = list[bytes]()
            size_bytes = 0
            while self._datagrams and self._datagrams[0][1] == address:
                message = self._datagrams.popleft()[0]
                messages.append(message)
                size_bytes += len(message)
                if size_bytes > _READ_BYTES or len(messages) == AT_ONCE:
                    break
            try:
                await self._store([one for one in messages if one], address, size_bytes)
            except _NO_ROOM:
                self._counts["dropped"] += len(messages)
            await asyncio.sleep(0)

    # --- both ---

    async def _store(
        self, messages: list[bytes], address: str, size_bytes: int
    ) -> asyncio.Task[Appended]:
        """Returns when they are admitted, in this order. Raises what `_NO_ROOM` lists."""
        latest_us = self._broker.clock.wall_us() + limits.TIMESTAMP_AHEAD_US_MAX
        headers = [read_header(message, latest_us) for message in messages]
        records = NewRecords(
            list(messages), None, [one for _, one in headers], [at_us for at_us, _ in headers]
        )
        with Reservation(self._broker.pending, f"address:{address}") as reservation:
            reservation.grow(size_bytes)
            held = reservation.handed_over()
        work = self._broker.appends.append(self._key, self._topic, records, held, address=address)
        task = asyncio.create_task(work, name="syslog")
        self._storing.add(task)
        task.add_done_callback(lambda done: self._stored(done, len(messages), address))
        await asyncio.sleep(0)  # it is admitted or refused in its first step
        if task.done() and isinstance(task.exception(), _NO_ROOM):
            await task
        return task

    def _stored(self, done: asyncio.Task[Appended], count: int, address: str) -> None:
        self._storing.discard(done)
        error = None if done.cancelled() else done.exception()
        if isinstance(error, _NO_ROOM):
            return  # whoever asked tries again, or drops them
        if error is None and not done.cancelled():
            self._counts["stored"] += count
        elif isinstance(error, SebError) and error.side_effects == "none":
            self._counts["dropped"] += count
            _log.warning("%d syslog messages of %s are dropped: %s", count, address, error)
        else:
            self._counts["unknown"] += count
            _log.error("%d syslog messages of %s may be lost", count, address, exc_info=error)


class _Waiting:
    """What a connection has sent that is not stored yet."""

    def __init__(self) -> None:
        self._tasks: deque[tuple[asyncio.Task[Appended], int]] = deque()
        self._bytes = 0

    async def room_for(self, size_bytes: int) -> None:
        while self._tasks and self._bytes + size_bytes > syslog_limits.WAITING_BYTES_MAX:
            await asyncio.wait([self._tasks[0][0]])
            self._forget_done()

    def begin(self, task: asyncio.Task[Appended], size_bytes: int) -> None:
        self._tasks.append((task, size_bytes))
        self._bytes += size_bytes
        self._forget_done()

    def _forget_done(self) -> None:
        while self._tasks and self._tasks[0][0].done():
            self._bytes -= self._tasks.popleft()[1]


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, received: Callable[[bytes, str], None]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._received(data, str(addr[0]))


def _address_of(writer: asyncio.StreamWriter) -> str:
    name = writer.get_extra_info("peername")
    return str(name[0]) if name else "0.0.0.0"  # noqa: S104 - gone already; in no network

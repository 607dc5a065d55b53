"""A port of a protocol: it listens, counts its connections, and ends them when it stops."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from seb_appliance.api.server.accepting import duplicates
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Shares
from seb_appliance.errors import ConfigurationError
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.connection import PacketConnection
from seb_appliance.protocols.sockets.handshaking import Handshake, TlsListener
from seb_appliance.protocols.sockets.listening import Connections
from seb_appliance.protocols.sockets.refusals import Refusals

_log = logging.getLogger(__name__)
C = TypeVar("C", bound=PacketConnection[Any])


class Port(Generic[C]):
    """The port of a protocol whose connections are `C`."""

    _ended_by_operator: ClassVar = 0  # as of `Codes`

    def __init__(
        self,
        broker: Broker,
        protocol: str,
        address: tuple[Sequence[str], int] | None,
        tls: ssl.SSLContext | None,
        *,
        room: Shares,
        starving: Shares,
        unsent: Shares,
    ) -> None:
        """`protocol`: its name. `address`: hosts and a port; None: it has none of its own. `room`:
        of connections with an API key. `starving`, `unsent`: as of `Listener`."""
        self.broker = broker
        self.room = room
        self.starving = starving
        self.unsent = unsent
        self._refusals = Refusals(broker.clock, protocol)
        self._protocol = protocol
        self._address = address
        self._tls = tls
        self._connections = Connections(room.limit, room.limit)
        self._all: dict[C, None] = {}  # in the order in which they came
        # Some have API keys by now.
        self._newcomers: OrderedDict[C | Handshake, None] = OrderedDict()
        # By API key: since when they have not taken all that they were sent, the longest first.
        self._slow: defaultdict[str, dict[C, float]] = defaultdict(dict)
        self._servers: list[asyncio.Server] = []
        self._listeners: list[TlsListener] = []
        self._idle = asyncio.Event()
        self._is_stopping = False

    @property
    def port(self) -> int:
        return int(self._servers[0].sockets[0].getsockname()[1])

    async def _listen(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Raises ConfigurationError if the port cannot be used."""
        assert self._address is not None
        (hosts, port), tls = self._address, self._tls
        serve = partial(asyncio.get_running_loop().create_server, make, backlog=1_024)
        try:
            server = await serve(hosts, port, start_serving=tls is None)
        except OSError as error:
            raise ConfigurationError(f"{self._protocol.lower()}_port {port}: {error}") from error
        self._servers.append(server)
        for bound in server.sockets:
            if tls is not None:
                self._listeners.append(TlsListener(bound.fileno(), partial(self._shake, make, tls)))
                continue
            for more in duplicates(bound.fileno()):
                self._servers.append(await serve(sock=more))

    def _shake(
        self,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext,
        accepted: socket.socket,
        address: str,
    ) -> None:
        Handshake(make, self, address).begin(accepted, tls, socket_limits.CONNECT_S_MAX)

    def _stop_listening(self) -> None:
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for server in self._servers:
            server.close()
        for one in tuple(self._newcomers):
            if isinstance(one, Handshake):
                one.end()

    async def _finish(self) -> None:
        """Wait until what was taken is stored and answered, or refused."""
        for connection in tuple(self._all):
            connection.finish()
        await self._all_are_closed()

    async def _cut_off(self) -> None:
        """Wait no more."""
        _log.warning("%d %s connections take too long to end", len(self._all), self._protocol)
        for connection in tuple(self._all):
            connection.transport.abort()
        await self._all_are_closed()

    async def _all_are_closed(self) -> None:
        while self._all:
            self._idle.clear()
            await self._idle.wait()

    def disconnect(self, number: int) -> bool:
        """Whether there was such a connection."""
        for one in self._all:
            if one.number == number:
                one.end("an operator has ended the connection", self._ended_by_operator)
                return True
        return False

    # --- what connections tell ---

    def shaking(self, handshake: Handshake) -> bool:
        """As `opened`: it counts as a connection."""
        return self._enter(handshake)

    def shaken(self, handshake: Handshake) -> None:
        self._newcomers.pop(handshake, None)
        self._connections.leave(handshake.address)

    def opened(self, connection: C) -> bool:
        """Whether there is room: whoever has no API key makes room for who comes later. One may
        come while this stops: of a handshake, or by WebSocket."""
        self._all[connection] = None
        return self._enter(connection) and not self._is_stopping

    def _enter(self, one: C | Handshake) -> bool:
        has_room = self._connections.enter(one.address) or self._make_room()
        self._newcomers[one] = None
        return has_room

    def _make_room(self) -> bool:
        while self._newcomers:
            oldest, _ = self._newcomers.popitem(last=False)
            if not oldest.has_key:
                oldest.end("another connection needs the place of one without an API key")
                return True
        return False

    def closed(self, connection: C) -> None:
        self._all.pop(connection, None)
        self._newcomers.pop(connection, None)
        self._connections.leave(connection.address)
        if connection.has_key:
            self.took_all(connection)
            self.room.give_back(connection.key.api_key_id, 1)
        if not self._all:
            self._idle.set()

    def refused(self, connection: C, why: str) -> None:
        self._refusals.note(connection.client_id, connection.address, why)

    @property
    def refusals(self) -> int:
        return self._refusals.count

    def slowed(self, connection: C) -> None:
        """The client, which has an API key, does not take at once what it is sent."""
        slow = self._slow[connection.key.api_key_id]
        slow.setdefault(connection, self.broker.clock.monotonic_s())

    def took_all(self, connection: C) -> None:
        """What it had not taken, or never will."""
        slow = self._slow.get(connection.key.api_key_id) if connection.has_key else None
        if slow is not None:
            slow.pop(connection, None)
            if not slow:
                del self._slow[connection.key.api_key_id]

    def make_room(self, connection: C) -> None:
        """It reads, and there is no memory for what it is to be sent: ends another of its API key
        that has been slow for long."""
        slow, now_s = self._slow.get(connection.key.api_key_id, {}), self.broker.clock.monotonic_s()
        for one, since_s in slow.items():
            if now_s - since_s >= socket_limits.NO_ROOM_S_MAX:
                one.end("it does not take what it is sent, and its API key has no more memory")
                one.transport.abort()
            return

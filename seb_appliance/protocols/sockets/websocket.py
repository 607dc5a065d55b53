"""A protocol of a port, carried by WebSocket (RFC 6455) on a path of the HTTP port: its bytes are
binary messages, however they are cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from litestar.types import HTTPScope
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from seb_appliance.api.server.auth import Network, forwarded_for
from seb_appliance.api.server.http_protocol import Upgrade, refusal_bytes
from seb_appliance.errors import BadRequestError
from seb_appliance.protocols.sockets.introduced import Introduced, common_name

_AT_ONCE: Final = 100  # frames between two turns of the event loop: less than 2 ms
Soon = Callable[[Callable[[], None]], object]


def call_soon(work: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(work)


def carrying(
    make: Callable[[], asyncio.Protocol],
    subprotocol: str,
    proxies: Sequence[Network],
    certificate_header: str | None = None,
) -> Upgrade:
    """Serves `make`'s protocol to clients that ask for `subprotocol`. `proxies`: whose word about a
    client's address counts, and about the subject of its certificate in `certificate_header`."""
    header = (certificate_header or "").lower().encode()

    def upgrade(transport: asyncio.Transport, scope: HTTPScope, head: bytes) -> asyncio.Protocol:
        address = forwarded_for(scope, proxies)
        given = [value for name, value in scope["headers"] if header and name == header]
        # Of two, one may be the client's own.
        is_known = address is not None and len(given) == 1
        certificate = common_name(given[0].decode("latin-1")) if is_known else None
        carried = WebSocket(make(), transport, subprotocol, address, certificate)
        carried.data_received(head)
        return carried

    return upgrade


class WebSocket(asyncio.Protocol):
    """`transport`: of a connection whose client asks for WebSocket with what it sends next.
    `address`, `certificate`: as of `Introduced`. `soon`: does something in the next turn of the
    event loop."""

    def __init__(
        self,
        carried: asyncio.Protocol,
        transport: asyncio.Transport,
        subprotocol: str,
        address: str | None,
        certificate: str | None,
        soon: Soon = call_soon,
    ) -> None:
        self._carried = carried
        self._transport = transport
        self._subprotocol = subprotocol
        self._address = address
        self._certificate = certificate
        self._frames = WSConnection(ConnectionType.SERVER)
        self._is_open = False
        self._soon = soon
        self._scheduled = False  # frames wait for the next turn
        self._carried_waits = False
        self._reads = True
        self._is_slow = False  # the client does not take what it is sent
        self._pong: Event | None = None  # is sent once it does

    def data_received(self, data: bytes) -> None:
        if not data or self._transport.is_closing():
            return
        try:
            self._frames.receive_data(data)
        except (ProtocolError, UnicodeDecodeError) as error:
            self._fail(error)
            return
        if not self._scheduled:
            self._process()

    def _process(self) -> None:
        """Takes frames: a small one takes as long as a large one, so only so many at once."""
        self._scheduled = False
        try:
            for number, event in enumerate(self._frames.events(), 1):
                self._take(event)
                if number == _AT_ONCE:
                    self._scheduled = True
                    self._soon(self._process)
                    break
        except (ProtocolError, UnicodeDecodeError) as error:
            self._fail(error)
        self._regulate()

    def read_on(self, *, waits: bool) -> None:
        """`waits`: the carried protocol takes nothing more now."""
        self._carried_waits = waits
        self._regulate()

    def _regulate(self) -> None:
        wanted = not (self._scheduled or self._carried_waits)
        if wanted != self._reads and not self._transport.is_closing():
            self._reads = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def _fail(self, error: Exception) -> None:
        if self._is_open:
            self.end(CloseReason.PROTOCOL_ERROR)
        else:
            self._refuse(f"This is no valid request for WebSocket: {error}.")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_open:
            self._carried.connection_lost(exc)
        self._carried = asyncio.Protocol()  # it refers to us: the collector comes late to a circle

    def pause_writing(self) -> None:
        self._is_slow = True
        if self._is_open:
            self._carried.pause_writing()

    def resume_writing(self) -> None:
        self._is_slow = False
        if self._pong is not None:
            pong, self._pong = self._pong, None
            self._write(pong)
        if self._is_open:
            self._carried.resume_writing()

    def send(self, data: bytes) -> None:
        """As one message."""
        self._write(BytesMessage(data))

    def end(self, reason: int = CloseReason.NORMAL_CLOSURE) -> None:
        self._write(CloseConnection(reason))
        self._transport.close()

    # --- inside ---

    def _write(self, event: Event) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._frames.send(event))

    def _take(self, event: Event) -> None:
        if self._transport.is_closing():
            return
        if isinstance(event, Request):
            self._open(event)
        elif isinstance(event, BytesMessage):
            self._carried.data_received(bytes(event.data))
        elif isinstance(event, TextMessage):
            self.end(CloseReason.UNSUPPORTED_DATA)
        elif isinstance(event, Ping):
            # Of several, the last one may be answered alone: a client that reads nothing would
            # have all answers kept.
            if self._is_slow:
                self._pong = event.response()
            else:
                self._write(event.response())
        elif isinstance(event, CloseConnection):
            self._write(event.response())
            self._transport.close()

    def _open(self, asked: Request) -> None:
        if self._subprotocol not in asked.subprotocols:
            self._refuse(f"Ask for the WebSocket subprotocol {self._subprotocol}.")
            return
        self._write(AcceptConnection(subprotocol=self._subprotocol))
        self._is_open = True
        self._carried.connection_made(
            _Carrier(self, self._transport, self._address, self._certificate)
        )

    def _refuse(self, why: str) -> None:
        self._transport.write(refusal_bytes(BadRequestError(why)))
        self._transport.close()


class _Carrier(Introduced):
    """What the carried protocol takes for its transport."""

    def __init__(
        self,
        websocket: WebSocket,
        inner: asyncio.Transport,
        address: str | None,
        certificate: str | None,
    ) -> None:
        super().__init__(inner, address, certificate)
        self.write = websocket.send  # type: ignore[method-assign,assignment]
        self.close = websocket.end  # type: ignore[method-assign]
        self._websocket = websocket

    def pause_reading(self) -> None:
        self._websocket.read_on(waits=True)

    def resume_reading(self) -> None:
        self._websocket.read_on(waits=False)

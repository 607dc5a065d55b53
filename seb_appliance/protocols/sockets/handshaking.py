"""Connections with TLS, from the socket on.

asyncio tells a protocol of such a connection once its handshake is done, and lets any number of
handshakes be under way: who sends nothing would hold all files that may be open, and 50 KB of
memory each. So connections are accepted here, and count from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from seb_appliance.api.server.accepting import ACCEPTED_AT_ONCE

_BACKLOG: Final = 1_024
_RETRY_S: Final = 1.0  # after an error such as too many open files


class Gate(Protocol):
    """The port, which counts."""

    def shaking(self, handshake: Handshake) -> bool:
        """One begins; whether there is room for it."""
        ...

    def shaken(self, handshake: Handshake) -> None:
        """It is done, and its connection is not opened yet; or it never will be."""
        ...


class Handshake(asyncio.Protocol):
    """In front of `make`'s protocol, which gets the transport once it is done."""

    has_key: Final = False

    def __init__(self, make: Callable[[], asyncio.Protocol], gate: Gate, address: str) -> None:
        self.address = address
        self._make = make
        self._gate = gate
        self._accepted: socket.socket | None = None  # until it is done
        self._task: asyncio.Task[None] | None = None

    def begin(self, accepted: socket.socket, tls: ssl.SSLContext, seconds: float) -> None:
        if not self._gate.shaking(self):
            accepted.close()
            self._gate.shaken(self)
            return
        self._accepted = accepted
        self._task = asyncio.create_task(self._shake(accepted, tls, seconds), name="tls")

    async def _shake(self, accepted: socket.socket, tls: ssl.SSLContext, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self, accepted, ssl=tls, ssl_handshake_timeout=seconds
            )
        except OSError:  # the client's own fault, or it is gone
            pass
        finally:
            self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._end()
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def end(self, reason: str = "", code: int = 0) -> None:  # noqa: ARG002 - as of a connection
        """Cut it off, if it is not done: it fails. asyncio before 3.11.8 closes no socket of one
        that is cancelled."""
        if self._accepted is not None:
            with contextlib.suppress(OSError):  # the client is gone
                self._accepted.shutdown(socket.SHUT_RDWR)

    def _end(self) -> None:
        if self._accepted is not None:
            self._accepted = None
            self._gate.shaken(self)


class TlsListener:
    """Accepts connections of a bound socket."""

    def __init__(self, bound: int, accepted: Callable[[socket.socket, str], None]) -> None:
        """`bound`: its file, of which this keeps a duplicate. `accepted` gets each connection, and
        the address of its client."""
        self._loop = asyncio.get_running_loop()
        self._accepted = accepted
        self._again: asyncio.TimerHandle | None = None
        self._socket = socket.socket(fileno=os.dup(bound))
        self._socket.setblocking(False)
        self._socket.listen(_BACKLOG)
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._socket)
                self._again = self._loop.call_later(
                    _RETRY_S, self._loop.add_reader, self._socket, self._accept
                )
                return
            accepted.setblocking(False)
            self._accepted(accepted, str(peer[0]))

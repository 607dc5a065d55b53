"""Transports around the one of a connection, and what is asked of its socket."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Callable, Iterable
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl

_LINGER_S: Final = 2.0


class ForwardingTransport(asyncio.Transport):
    """Forwards everything to the real one, `inner`."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self.inner = inner
        self.write = inner.write  # type: ignore[method-assign]  # hot: no detour

    def close(self) -> None:
        self.inner.close()

    def is_closing(self) -> bool:
        return self.inner.is_closing()

    def abort(self) -> None:
        self.inner.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)

    def is_reading(self) -> bool:
        return self.inner.is_reading()

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.inner.writelines(list_of_data)

    def get_write_buffer_size(self) -> int:
        return self.inner.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.inner.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.inner.get_protocol()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.inner.set_write_buffer_limits(high, low)


class LingeringTransport(ForwardingTransport):
    """Forwards everything to the real transport, except `close` while `still_sending()`.

    Closing a socket with unread bytes makes the kernel send a reset, and the client loses the
    answer, such as a 413. So our side is closed first, and input is discarded for a moment.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        still_sending: Callable[[], bool],
        on_unsent: Callable[[], None],
    ) -> None:
        """`on_unsent`: called when it closes before the client has taken all that was written."""
        super().__init__(transport)
        self._loop = loop
        self._still_sending = still_sending
        self._on_unsent = on_unsent
        self._timer: asyncio.TimerHandle | None = None
        self.is_lingering = False

    def close(self) -> None:
        if self._still_sending():
            self.linger()
        elif not self.is_lingering:
            self._hang_up()

    def linger(self) -> None:
        """Close our side; hang up a little later, or when the client does."""
        if self.is_lingering or self.inner.is_closing():
            return
        self.is_lingering = True
        self.inner.write_eof()
        self.inner.resume_reading()
        self._timer = self._loop.call_later(_LINGER_S, self._hang_up)

    def _hang_up(self) -> None:
        self.inner.close()
        if self.inner.get_write_buffer_size():
            self._on_unsent()

    def unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def is_closing(self) -> bool:
        return self.is_lingering or self.inner.is_closing()


class Flow(FlowControl):
    """Nothing is read while bytes wait to be parsed."""

    def __init__(self, transport: asyncio.Transport, is_held: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._is_held = is_held

    def resume_reading(self) -> None:
        if not self._is_held():
            super().resume_reading()


def send_at_once(transport: asyncio.Transport) -> None:
    """No Nagle: the body, a second write, would wait 40 ms for the client's delayed ACK. asyncio
    does so only for listeners that name their protocol."""
    connection = transport.get_extra_info("socket")
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Bytes that the client's kernel has not confirmed: in our buffer and in our kernel."""
    connection = transport.get_extra_info("socket")
    (in_kernel,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0" * 4))
    return int(transport.get_write_buffer_size() + in_kernel)

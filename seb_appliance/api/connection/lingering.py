"""A transport that hangs up politely on a client that is still sending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

_LINGER_S: Final = 2.0


class LingeringTransport(asyncio.Transport):
    """Everything goes to the real transport, but `close` while `still_sending()`.

    Closing a socket that holds unread bytes makes the kernel send a reset, and the client loses the
    answer (a 413, say) that it was just sent. So our side is closed first, and what still comes is
    taken and thrown away for a moment.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        still_sending: Callable[[], bool],
        on_unsent: Callable[[], None],
    ) -> None:
        """`on_unsent`: called when it is closed before the client took all that was written."""
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._still_sending = still_sending
        self._on_unsent = on_unsent
        self._timer: asyncio.TimerHandle | None = None
        self.is_lingering = False
        self.write = transport.write  # type: ignore[method-assign]  # the hot one: no detour

    def close(self) -> None:
        if self._still_sending():
            self.linger()
        elif not self.is_lingering:
            self._hang_up()

    def linger(self) -> None:
        """Say that no more comes from us, and hang up a little later, or when the client does."""
        if self.is_lingering or self._transport.is_closing():
            return
        self.is_lingering = True
        self._transport.write_eof()
        self._transport.resume_reading()
        self._timer = self._loop.call_later(_LINGER_S, self._hang_up)

    def _hang_up(self) -> None:
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._on_unsent()

    def unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def is_closing(self) -> bool:
        return self.is_lingering or self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._transport.writelines(list_of_data)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

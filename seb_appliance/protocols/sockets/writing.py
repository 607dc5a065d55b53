"""Writing many small pieces to a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from seb_appliance import limits

_AT_ONCE_BYTES: Final = 64 * limits.KIB  # written before the event loop has its turn
_TLS_PIECE_BYTES: Final = 16 * limits.KIB  # a record of TLS


class GatheredWrites:
    """Pieces that are written in one turn of the event loop go out together: a call of the kernel
    for each takes longer than all else that is done for it.

    A slow client's pieces wait here if its connection has TLS. The transport of TLS would hand
    them all to that of the connection as soon as that one is empty, and count them no more.
    """

    def __init__(
        self, transport: asyncio.WriteTransport, on_written: Callable[[], None] = lambda: None
    ) -> None:
        """`on_written`: called each time that pieces have left, or wait for a slow client."""
        self._transport = transport
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._on_written = on_written
        self._pieces = list[bytes | bytearray | memoryview]()
        self._size_bytes = 0
        self._is_paused = False

    @property
    def unsent_bytes(self) -> int:
        """Here and in the transport."""
        return self._transport.get_write_buffer_size() + self._size_bytes

    def write(self, data: bytes | bytearray) -> None:
        """`data` belongs to the connection from now on."""
        self._pieces.append(data)
        self._size_bytes += len(data)
        if self._size_bytes >= _AT_ONCE_BYTES:
            self.flush()
        elif len(self._pieces) == 1:
            asyncio.get_running_loop().call_soon(self.flush)

    def pause(self) -> None:
        """The transport has enough."""
        self._is_paused = True

    def resume(self) -> None:
        """It takes more; it may call for another pause at once."""
        self._is_paused = False
        if self._pieces:
            self.flush()

    def finish(self) -> None:
        """Before the transport is closed; afterwards nothing is written."""
        self._is_tls = False
        self.flush()

    def flush(self) -> None:
        if not (self._is_tls and self._is_paused):
            # A large piece is not copied.
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self._size_bytes = 0
            if data and not self._transport.is_closing():
                if self._is_tls:
                    self._write_pieces(memoryview(data))
                else:
                    self._transport.write(data)
        self._on_written()

    def _write_pieces(self, data: memoryview) -> None:
        for at in range(0, len(data), _TLS_PIECE_BYTES):
            if self._is_paused:
                self._pieces.append(data[at:])
                self._size_bytes = len(data) - at
                return
            self._transport.write(data[at : at + _TLS_PIECE_BYTES])

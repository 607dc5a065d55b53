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
    for each takes longer than all else that is done for it."""

    def __init__(
        self, transport: asyncio.WriteTransport, on_flushed: Callable[[], None] = lambda: None
    ) -> None:
        """`on_flushed`: called each time that nothing waits here any more."""
        self._transport = transport
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._on_flushed = on_flushed
        self._pieces = list[bytes | bytearray]()
        self._size_bytes = 0

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

    def flush(self) -> None:
        """Before the transport is closed; afterwards nothing is written."""
        # A large piece is not copied.
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size_bytes = 0
        if data and not self._transport.is_closing():
            if self._is_tls:
                self._write_pieces(memoryview(data))
            else:
                self._transport.write(data)
        self._on_flushed()

    def _write_pieces(self, data: memoryview) -> None:
        """The transport of TLS hands each to that of the connection, until that one has too much,
        and does not count it from then on."""
        for at in range(0, len(data), _TLS_PIECE_BYTES):
            self._transport.write(data[at : at + _TLS_PIECE_BYTES])

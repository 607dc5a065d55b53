"""One HTTP/1.1 connection for large answers: they are received where they are read, uncopied."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from seb_appliance import limits
from seb_appliance.bench.exchange import content_length, status_of, unchunked

_BUFFER_BYTES: Final = 512 * limits.KIB
_END: Final = b"\r\n\r\n"


class LargeExchange(asyncio.BufferedProtocol):
    """As `Exchange`, but that the body is a view which is good until the next request is sent."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.busy_since_s: float | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._head = b""
        self._body_at = 0  # 0: the head has not come
        self._whole: int | None = None  # bytes of head and body; None: the body comes in chunks

    def answered(self, status: int, head: bytes, body: memoryview) -> None:
        """An answer came whole."""
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is gone."""
        raise NotImplementedError

    def send(self, request: bytes, now_s: float) -> None:
        self.busy_since_s = now_s
        assert self.transport is not None
        self.transport.write(request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.transport = None
        self.lost()
        self.busy_since_s = None

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        if self._filled == len(self._buffer):
            self._grow(2 * self._filled)
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if not self._body_at and not self._read_head():
            return
        if self._whole is None:
            body = unchunked(bytes(self._view[self._body_at : self._filled]))
            if body is not None:
                self._finish(memoryview(body))
        elif self._filled == self._whole:
            self._finish(self._view[self._body_at : self._whole])
        elif self._filled > self._whole:
            self.abort()  # more than was promised: nobody knows what it is

    def _read_head(self) -> bool:
        """Whether it has come."""
        end = self._buffer.find(_END, 0, self._filled)
        if end < 0:
            return False
        self._head = bytes(self._view[:end])
        self._body_at = end + len(_END)
        length = content_length(self._head)
        self._whole = None if length is None else self._body_at + length
        if self._whole is not None and self._whole > len(self._buffer):
            self._grow(self._whole)
        return True

    def _grow(self, size: int) -> None:
        larger = bytearray(size)
        larger[: self._filled] = self._view[: self._filled]
        self._buffer, self._view = larger, memoryview(larger)

    def _finish(self, body: memoryview) -> None:
        self._filled = self._body_at = 0
        self.busy_since_s = None
        self.answered(status_of(self._head), self._head, body)

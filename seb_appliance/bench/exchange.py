"""One HTTP/1.1 connection with one request on its way: the least that can be done for each.

Reads answers with Content-Length or in chunks. `Exchange` is a base class because a call more for
each answer is what limits a load generator in Python.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from seb_appliance import limits

_HEAD_BYTES_MAX: Final = 64 * limits.KIB
_END: Final = b"\r\n\r\n"


class Exchange(asyncio.Protocol):
    """`busy_since_s`: when the request on its way was sent, on the caller's clock; None without
    one. The caller sends no second request before the first one is answered."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.busy_since_s: float | None = None
        self._parts: list[bytes] = []
        self._left = -1  # bytes of the body that have not come; -1: the head has not come, either
        self._status = 0
        self._head = b""
        self._is_chunked = False

    def answered(self, status: int, head: bytes, body: bytes) -> None:
        """An answer came whole. `head`: the status line and the headers."""
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is gone; the request on its way, if any, stays without an answer."""
        raise NotImplementedError

    def send(self, request: bytes, now_s: float) -> None:
        self.busy_since_s = now_s
        assert self.transport is not None
        self.transport.write(request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.busy_since_s = None
        self._parts.clear()
        self._left = -1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.transport = None
        self.lost()
        self.busy_since_s = None

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            if self._parts:
                data = b"".join((*self._parts, data))
                self._parts.clear()
            end = data.find(_END)
            if end < 0:
                self._parts.append(data)
                if len(data) > _HEAD_BYTES_MAX:
                    self.abort()
                return
            head = data[:end]
            length = content_length(head)
            if length == len(data) - end - 4:  # nearly always
                self.busy_since_s = None
                self.answered(status_of(head), head, data[end + 4 :])
                return
            self._begin_body(head, length, data[end + 4 :])
            return
        self._parts.append(data)
        if self._is_chunked:
            self._try_chunks()
            return
        self._left -= len(data)
        if self._left <= 0:
            self._end_body(b"".join(self._parts))

    def _begin_body(self, head: bytes, length: int | None, begin: bytes) -> None:
        self._head, self._status = head, status_of(head)
        self._parts.append(begin)
        self._is_chunked = length is None
        if length is None:
            self._left = 0
            self._try_chunks()
            return
        self._left = length - len(begin)
        if self._left < 0:
            self.abort()  # more than was promised: nobody knows what it is

    def _try_chunks(self) -> None:
        joined = b"".join(self._parts)
        self._parts = [joined]
        if not joined.endswith(b"0\r\n\r\n"):
            return
        body = unchunked(joined)
        if body is not None:
            self._end_body(body)

    def _end_body(self, body: bytes) -> None:
        self._parts.clear()
        excess, self._left, self.busy_since_s = self._left < 0, -1, None
        if excess:
            self.abort()
            return
        self.answered(self._status, self._head, body)


def header(head: bytes, name: bytes) -> bytes | None:
    """The value of a header; `name` in lower case."""
    at = head.lower().find(b"\r\n" + name + b":")
    if at < 0:
        return None
    at += len(name) + 3
    end = head.find(b"\r\n", at)
    return head[at : end if end >= 0 else len(head)].strip()


def unchunked(raw: bytes) -> bytes | None:
    """The body that came in chunks; None when it has not come whole."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = raw.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(raw[at:end].split(b";")[0], 16)
        if size == 0:
            return b"".join(parts) if raw[end + 2 : end + 4] == b"\r\n" else None
        at = end + 2
        if len(raw) < at + size + 2:
            return None
        parts.append(raw[at : at + size])
        at += size + 2


def status_of(head: bytes) -> int:
    """Of an answer's first line."""
    return int(head[9:12])


def content_length(head: bytes) -> int | None:
    """None: the body comes in chunks. Of an answer without either, nothing is expected."""
    at = head.find(b"\r\ncontent-length: ")  # as uvicorn writes it
    if at >= 0:
        end = head.find(b"\r", at + 2)
        return int(head[at + 18 : end if end >= 0 else len(head)])
    length = header(head, b"content-length")
    if length is not None:
        return int(length)
    return None if b"chunked" in (header(head, b"transfer-encoding") or b"").lower() else 0


# One HTTP/1.1 connection for large answers: they are received where they are read, uncopied.


_BUFFER_BYTES: Final = 512 * limits.KIB


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

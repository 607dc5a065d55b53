"""Packets out of a stream of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

B = TypeVar("B", bound=bytes)
P = TypeVar("P")


class BadPacketError(Exception):
    """The connection ends. `code`: the reason that the client is told, if its protocol has codes
    for it."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Framer(Generic[P]):
    """The bytes of one connection that are not taken yet. A protocol says where a packet ends."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0

    @property
    def waiting_bytes(self) -> int:
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next(self) -> P | None:
        """The next packet; None: it is not whole yet. Raises BadPacketError, for a packet that is
        too long before all of it has come."""
        raise NotImplementedError

    def _take(self, begin: int, end: int, made: Callable[[memoryview], B]) -> B:
        """These bytes of the buffer, which nobody needs any more up to `end`."""
        with memoryview(self._buffer) as view:
            taken = made(view[begin:end])
        self._at = end
        if end == len(self._buffer):  # a large packet does not stay until the next one comes
            self._buffer.clear()
            self._at = 0
        return taken

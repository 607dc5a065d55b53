"""Requests out of a stream of bytes: a length of four bytes before each."""

from __future__ import annotations

import struct
from typing import Final

from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.wire.types import BadMessageError, Frame
from seb_appliance.protocols.sockets import framing

_LENGTH: Final = struct.Struct(">i")
_BEGIN: Final = struct.Struct(">ih")  # the length, and the key of the API
_SMALLEST: Final = 10  # the header up to the client id
_PRODUCE: Final = 0


class Framer(framing.Framer[Frame]):
    """`is_trusted`: an API key has come, so requests may be larger."""

    def __init__(self) -> None:
        super().__init__()
        self.is_trusted = False

    def next(self) -> Frame | None:
        """The next whole request, without its length. Raises BadMessageError."""
        if self.waiting_bytes < _BEGIN.size:
            return None
        length, api_key = _BEGIN.unpack_from(self._buffer, self._at)
        if not _SMALLEST <= length <= self._largest(api_key):
            raise BadMessageError(f"a request of {length} bytes")
        begin = self._at + _LENGTH.size
        end = begin + length
        if end > len(self._buffer):
            return None
        return self._take(begin, end, Frame)

    def _largest(self, api_key: int) -> int:
        if not self.is_trusted:
            return kafka_limits.FIRST_REQUEST_BYTES_MAX
        is_produce = api_key == _PRODUCE
        return kafka_limits.PRODUCE_BYTES_MAX if is_produce else kafka_limits.REQUEST_BYTES_MAX

"""Responses that are sent many times: they are written once."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from seb_appliance.protocols.kafka.wire.codec import Message, write_response

_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_AT: Final = 4  # behind the length
_NUMBER: Final = struct.Struct(">q")


class Template:
    """The response that `message` makes of an i64, which may be in one field of it, or in none."""

    def __init__(self, key: int, version: int, message: Callable[[int], Message]) -> None:
        written, other = (bytes(write_response(key, version, 0, message(n))) for n in (0, -1))
        self._data = written
        # Each byte of 0 differs from that of -1: the first one that differs begins the field.
        differs = (at for at, byte in enumerate(written) if byte != other[at])
        self._at = next(differs, None)

    def response(self, correlation_id: int, number: int = 0) -> bytes:
        data = bytearray(self._data)
        _CORRELATION_ID.pack_into(data, _CORRELATION_ID_AT, correlation_id)
        if self._at is not None:
            _NUMBER.pack_into(data, self._at, number)
        return bytes(data)

"""The primitive types of the Kafka protocol: how each is read and written.

A reader takes the frame and a position, and returns the value and the position after it. A writer
appends to a bytearray. `Compact` types have lengths as unsigned varints, one too large, so that 0
is null; they are those of flexible versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.sockets.framing import BadPacketError


class BadMessageError(BadPacketError):
    """The bytes are no such message. The connection ends: where the next one begins is unknown."""


class Frame(bytes):
    """A request. `elements`: of arrays that were read from it, which bounds the time it takes."""

    elements: int = 0

    def count(self, number: int, at: int) -> int:  # type: ignore[override]
        """The number of elements of an array that begins here. Raises BadMessageError."""
        self.elements += number
        if number > len(self) - at or self.elements > kafka_limits.MESSAGE_ELEMENTS_MAX:
            raise BadMessageError(f"an array has {number} elements")
        return number


Reader: TypeAlias = Callable[[Frame, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[bytearray, Any], None]

_UUID_BYTES: Final = 16
NO_UUID: Final = bytes(_UUID_BYTES)


def _cut(frame: Frame, at: int, size_bytes: int) -> int:
    """The end of a field. Raises BadMessageError."""
    end = at + size_bytes
    if size_bytes < 0 or end > len(frame):
        raise BadMessageError("a field goes beyond its message")
    return end


def _number(layout: str) -> tuple[Reader, Writer]:
    whole = struct.Struct(layout)
    unpack, pack, size = whole.unpack_from, whole.pack, whole.size

    def read(frame: Frame, at: int) -> tuple[Any, int]:
        return unpack(frame, at)[0], at + size

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return read, write


def read_uvarint(frame: bytes, at: int) -> tuple[int, int]:
    first = frame[at]
    if first < 0x80:
        return first, at + 1
    result, shift = first & 0x7F, 7
    while shift < 35:
        at += 1
        byte = frame[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at + 1
        shift += 7
    raise BadMessageError("a varint is too long")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# As `struct` has them.
LAYOUTS: Final = {"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u16": "H"}
NUMBERS: Final = {kind: _number(f">{layout}") for kind, layout in LAYOUTS.items()}

_read_i16, _write_i16 = NUMBERS["i16"]
_read_i32, _write_i32 = NUMBERS["i32"]


def read_length(frame: Frame, at: int, *, compact: bool, short: bool) -> tuple[int, int]:
    """-1 for null. `short`: of a string of old versions, which has 16 bits."""
    if compact:
        number, at = read_uvarint(frame, at)
        return number - 1, at
    return _read_i16(frame, at) if short else _read_i32(frame, at)


def write_length(out: bytearray, length: int, *, compact: bool, short: bool) -> None:
    if compact:
        write_uvarint(out, length + 1)
    elif short:
        _write_i16(out, length)
    else:
        _write_i32(out, length)


def sized(kind: str, *, compact: bool, nullable: bool) -> tuple[Reader, Writer]:
    """`str`, `bytes` or `records`. Records are read as a view of the frame, and written from bytes
    or from a list of them: they are large."""
    short = kind == "str"

    def read(frame: Frame, at: int) -> tuple[Any, int]:
        length, at = read_length(frame, at, compact=compact, short=short)
        if length < 0:
            if not nullable:
                raise BadMessageError("a field is null that must not be")
            return None, at
        end = _cut(frame, at, length)
        if short:
            try:
                return frame[at:end].decode(), end
            except UnicodeDecodeError as error:
                raise BadMessageError("a string is not UTF-8") from error
        if kind == "records":
            return memoryview(frame)[at:end], end
        return frame[at:end], end

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            assert nullable
            write_length(out, -1, compact=compact, short=short)
            return
        if isinstance(value, list):
            write_length(out, sum(map(len, value)), compact=compact, short=short)
            for piece in value:
                out += piece
            return
        data = value.encode() if short else value
        write_length(out, len(data), compact=compact, short=short)
        out += data

    return read, write


def _read_uuid(frame: Frame, at: int) -> tuple[bytes, int]:
    end = _cut(frame, at, _UUID_BYTES)
    return frame[at:end], end


def _write_uuid(out: bytearray, value: bytes) -> None:
    out += value


UUID: Final[tuple[Reader, Writer]] = (_read_uuid, _write_uuid)

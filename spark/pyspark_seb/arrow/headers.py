"""Record headers as a list of names and values, as Kafka has them, and as they are stored: a map.

What a map cannot say (a name twice, a null) is in one more header, RAW: the header section of
Kafka's record format, as docs/KAFKA.md says. It is the number of headers, then for each the length
of the name, the name, the length of the value (-1: null) and the value; numbers are zigzag varints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

RAW: Final = "kafka-headers"
Pairs = list[tuple[str, bytes | None]]

_unpack: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def pairs_of(packed: bytes | None) -> Pairs:
    """Of a record's stored headers."""
    if not packed:
        return []
    headers = _unpack(packed)
    raw = headers.get(RAW)
    if raw is not None:
        try:
            return _read(raw)
        except (IndexError, ValueError):
            pass  # anyone may send a header of this name
    return list(headers.items())


def packed_of(pairs: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Headers to be stored; no bytes for none."""
    pairs = list(pairs)
    if not pairs:
        return b""
    headers = {name: value for name, value in pairs if value is not None}
    if len(headers) < len(pairs) or RAW in headers:
        headers[RAW] = _section(pairs)
    return msgspec.msgpack.encode(headers)


def _read(section: bytes) -> Pairs:
    """Raises IndexError, ValueError for other bytes than a section."""
    count, at = _number(section, 0)
    if count < 0:
        raise ValueError("the number of headers is negative")
    found: Pairs = []
    for _ in range(count):
        length, at = _number(section, at)
        if length < 0:
            raise ValueError("the length of a name is negative")
        end = at + length
        name = section[at:end].decode(errors="replace")
        length, at = _number(section, end)
        value = None if length < 0 else section[at : at + length]
        at += max(0, length)
        found.append((name, value))
    if at != len(section):
        raise ValueError("the section is too short or too long")
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift > 28:
            raise ValueError("no number of a section is so long")


def _section(pairs: Pairs) -> bytes:
    parts = [_varint(len(pairs))]
    for text, value in pairs:
        name = text.encode()
        parts += [_varint(len(name)), name, _varint(-1 if value is None else len(value))]
        parts += [value or b""]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else -number * 2 - 1
    made = bytearray()
    while rest > 127:
        made.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*made, rest])

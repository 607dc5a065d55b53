"""Record headers: Kafka's are a list of names and values, ours a map of text to bytes.

A header section, as Kafka's records have it, is the number of headers, then for each the length of
the name, the name, the length of the value (-1: null), the value. Where a map cannot say that (a
name twice, a null, a name that is no UTF-8, or our own extra header), the map holds what it can,
the last value of each name, and one more header RAW_HEADERS with the section. A section that is
made of such a map again is this one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.values import pack_headers
from seb_appliance.errors import RecordTooLargeError
from seb_appliance.protocols.kafka.records.errors import INVALID, RecordsError
from seb_appliance.protocols.kafka.records.layout import NULL, VARINTS, varint

RAW_HEADERS: Final = "kafka-headers"
NO_HEADERS: Final = b"\0"  # the section of a record without headers

_unpack: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def map_of(section: bytes) -> bytes:
    """The header item (`NewRecords.headers`) for a whole header section. Raises RecordsError."""
    try:
        pairs = _pairs(section)
    except IndexError:
        raise _bad("The headers of a record end too early.") from None
    headers: dict[str, bytes] = {}
    try:
        for name, value in pairs:
            if value is not None:
                headers[name.decode()] = value
    except UnicodeDecodeError:
        headers = _sayable(pairs)
    if len(headers) != len(pairs) or RAW_HEADERS in headers:
        headers[RAW_HEADERS] = section
    try:
        return pack_headers(headers)
    except RecordTooLargeError as error:
        raise _bad(error.detail) from error


def section_of(item: bytes) -> bytes:
    """The header section for a header item of a stored record."""
    if not item:
        return NO_HEADERS
    headers = _unpack(item)
    raw = headers.get(RAW_HEADERS)
    if raw is not None and _is_section(raw):
        return raw
    parts = [VARINTS[len(headers)]]
    for text, value in headers.items():
        name = text.encode()
        parts += (VARINTS[len(name)], name, VARINTS[len(value)], value)
    return b"".join(parts)


def _pairs(section: bytes) -> list[tuple[bytes, bytes | None]]:
    """Raises IndexError where the section is too short, RecordsError."""
    raw, at = varint(section, 0)
    if raw & 1:
        raise _bad("The number of headers of a record is negative.")
    if raw >> 1 > limits.RECORD_HEADERS_MAX:
        raise _bad(
            f"A record has {raw >> 1} headers; at most {limits.RECORD_HEADERS_MAX} are allowed."
        )
    pairs: list[tuple[bytes, bytes | None]] = []
    for _ in range(raw >> 1):
        if (raw := section[at]) < 128:  # a call of `varint` would take longer than the rest
            at += 1
        else:
            raw, at = varint(section, at)
        end = at + (raw >> 1)
        name = section[at:end]
        is_bad = raw & 1
        if (raw := section[end]) < 128:
            at = end + 1
        else:
            raw, at = varint(section, end)
        end = at + (raw >> 1)
        if is_bad or raw & 1:
            if is_bad or raw != NULL:
                raise _bad("The length of a header's name or value is negative.")
            pairs.append((name, None))
        else:
            pairs.append((name, section[at:end]))
            at = end
    if at != len(section):
        raise _bad("The length of a record does not agree with its headers.")
    return pairs


def _sayable(pairs: list[tuple[bytes, bytes | None]]) -> dict[str, bytes]:
    """What a map of text to bytes can hold of them."""
    headers = {}
    for name, value in pairs:
        try:
            text = name.decode()
        except UnicodeDecodeError:
            continue
        if value is not None:
            headers[text] = value
    return headers


def _is_section(raw: bytes) -> bool:
    """An HTTP client may send any bytes as a header of this name."""
    try:
        _pairs(raw)
    except (IndexError, RecordsError):
        return False
    return True


def _bad(text: str) -> RecordsError:
    return RecordsError(INVALID, text)

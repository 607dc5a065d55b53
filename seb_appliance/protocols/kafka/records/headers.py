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
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.records.layout import NULL, VARINTS, varint

RAW_HEADERS: Final = "kafka-headers"
NO_HEADERS: Final = b"\0"  # the section of a record without headers

_unpack: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def map_of(section: bytes) -> bytes:
    """The header item (`NewRecords.headers`) for a whole header section. Raises KafkaError."""
    try:
        headers, is_all = _read(section)
    except IndexError:
        raise _bad("The headers of a record end too early.") from None
    if not is_all or RAW_HEADERS in headers:
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


def _read(section: bytes) -> tuple[dict[str, bytes], bool]:
    """What a map can hold of a section, and whether that is all of it. Raises IndexError where the
    section is too short, KafkaError."""
    raw, at = varint(section, 0)
    if raw & 1:
        raise _bad("The number of headers of a record is negative.")
    count = raw >> 1
    if count > limits.RECORD_HEADERS_MAX:
        raise _bad(
            f"A record has {count} headers; at most {limits.RECORD_HEADERS_MAX} are allowed."
        )
    headers: dict[str, bytes] = {}
    for _ in range(count):
        if (raw := section[at]) < 128:  # a call of `varint` would take longer than the rest
            at += 1
        else:
            raw, at = varint(section, at)
        is_bad = raw & 1
        end = at + (raw >> 1)
        name = section[at:end]
        if (raw := section[end]) < 128:
            at = end + 1
        else:
            raw, at = varint(section, end)
        if is_bad or (raw & 1 and raw != NULL):
            raise _bad("The length of a header's name or value is negative.")
        if raw != NULL:
            value = section[at : at + (raw >> 1)]
            at += raw >> 1
            try:
                headers[name.decode()] = value
            except UnicodeDecodeError:
                continue  # the caller keeps the section
    if at != len(section):
        raise _bad("The length of a record does not agree with its headers.")
    return headers, len(headers) == count


def _is_section(raw: bytes) -> bool:
    """An HTTP client may send any bytes as a header of this name."""
    try:
        _read(raw)
    except (IndexError, KafkaError):
        return False
    return True


def _bad(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, text)

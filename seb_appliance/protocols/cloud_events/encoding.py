"""Records as CloudEvents 1.0 in the JSON format: those that came as events, and all others.

What came as an event goes out as the same event. A record of another kind becomes one: its id is
topic id and offset, its source the topic's path, its type `seb.record`, or `seb.tombstone`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw

from seb_appliance.api.encoding.answers import format_time
from seb_appliance.broker.values import BatchSlice, ReadResult
from seb_appliance.protocols.cloud_events.requests import (
    ATTRIBUTE,
    CONTENT_TYPE_HEADER,
    HEADER_PREFIX,
    REQUIRED,
    is_json,
)

_RECORDS_AT_ONCE: Final = 256  # about a millisecond
_BYTES_AT_ONCE: Final = 256 * 1024
_encode: Final = msgspec.json.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def event_parts(result: ReadResult) -> Iterator[bytes]:
    """A list of events, in parts that are made when they are asked for."""
    opening = b"["
    for piece in result.slices:
        mean_bytes = piece.batch.header.inflated_bytes // piece.batch.header.count + 1
        at_once = max(1, min(_RECORDS_AT_ONCE, _BYTES_AT_ONCE // mean_bytes))
        for begin in range(piece.begin, piece.end, at_once):
            end = min(begin + at_once, piece.end)
            yield opening + _encode([_event(result, piece, i) for i in range(begin, end)])[1:-1]
            opening = b","
    yield b"[]\n" if opening == b"[" else b"]\n"


def one_event(result: ReadResult) -> bytes:
    """The first record of the result, of which there is one."""
    return _encode(_event(result, result.slices[0], result.slices[0].begin)) + b"\n"


def _event(result: ReadResult, piece: BatchSlice, i: int) -> dict[str, Any]:
    columns = piece.batch.columns
    packed = None if columns.headers is None else columns.headers.get(i)
    headers = _unpack(packed) if packed else {}
    event = _stored_attributes(headers)
    if event is None:
        event = _made_attributes(result, piece, i)
    value = columns.values.get(i)
    if value:
        content_type = _text(headers.get(CONTENT_TYPE_HEADER, b"")) or None
        if content_type is None and HEADER_PREFIX + "id" not in headers:
            content_type = _guessed(value)
        if content_type is not None:
            event["datacontenttype"] = content_type
        _set_data(event, value, content_type)
    return event


def _stored_attributes(headers: dict[str, bytes]) -> dict[str, Any] | None:
    """None when the record is not whole as an event."""
    attributes: dict[str, Any] = {}
    for header, content in headers.items():
        name = header.removeprefix(HEADER_PREFIX)
        text = _text(content)
        if name != header and text and ATTRIBUTE.fullmatch(name):
            attributes[name] = text
    for name in ("data", "datacontenttype"):  # somebody else's: an event has none
        attributes.pop(name, None)
    whole = all(name in attributes for name in REQUIRED) and attributes["specversion"] == "1.0"
    return attributes if whole else None


def _made_attributes(result: ReadResult, piece: BatchSlice, i: int) -> dict[str, Any]:
    columns = piece.batch.columns
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": f"{result.topic_id}-{piece.batch.offsets()[i]}",
        "source": f"/v1/topics/{result.topic}",
        "type": "seb.tombstone" if columns.values.is_null(i) else "seb.record",
        "time": format_time(columns.timestamps_us[i]),
    }
    key = None if columns.keys is None else columns.keys.get(i)
    text = _text(key or b"")
    if text:
        event["partitionkey"] = text
    return event


def _guessed(value: bytes) -> str:
    """The content type of a value that nobody gave one."""
    if _as_json(value) is not None:
        return "application/json"
    return "application/octet-stream" if _text(value) is None else "text/plain; charset=utf-8"


def _set_data(event: dict[str, Any], value: bytes, content_type: str | None) -> None:
    if content_type is not None and is_json(content_type):
        parsed = _as_json(value)
        if parsed is not None:
            event["data"] = parsed
            return
    elif content_type is not None:
        text = _text(value)
        if text is not None:
            event["data"] = text
            return
    event["data_base64"] = value


def _as_json(value: bytes) -> Raw | None:
    """None for what is no JSON, and for `null`, which would say that there is no data."""
    try:
        value.decode()
        formatted = msgspec.json.format(value, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if formatted == b"null" else Raw(formatted)


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None

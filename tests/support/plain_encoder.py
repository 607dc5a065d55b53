"""The plain way to write records as JSON, one at a time: what the fast one is held to."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from seb_appliance.api.encoding.answers import format_time
from seb_appliance.api.encoding.record_encoding import RecordOut, RecordsOut, ValueShape
from seb_appliance.broker.values import BatchSlice, ReadResult
from seb_appliance.formats.columns import BinaryColumn


def plain_json(result: ReadResult, shape: ValueShape) -> bytes:
    return (
        msgspec.json.encode(
            RecordsOut(
                result.topic,
                result.topic_id,
                list(plain_records(result, shape)),
                result.next_offset,
                result.log_start_offset,
                result.log_end_offset,
            )
        )
        + b"\n"
    )


def plain_ndjson(result: ReadResult, shape: ValueShape) -> bytes:
    records = plain_records(result, shape)
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def plain_records(result: ReadResult, shape: ValueShape) -> Iterator[RecordOut]:
    for piece in result.slices:
        yield from _slice_records(piece, shape)


def _slice_records(piece: BatchSlice, shape: ValueShape) -> Iterator[RecordOut]:
    begin, end = piece.begin, piece.end
    columns = piece.batch.columns
    offsets = piece.batch.offsets()[begin:end]
    timestamps = columns.timestamps_us[begin:end].tolist()
    values = columns.values.slice(begin, end)
    keys = _items(columns.keys, begin, end)
    headers = _items(columns.headers, begin, end)
    for offset, timestamp_us, value, key, packed in zip(
        offsets, timestamps, values, keys, headers, strict=True
    ):
        record = RecordOut(offset, format_time(timestamp_us), None, None, {})
        if shape == "base64":
            _fill_base64(record, value, key, packed)
        else:
            _fill(record, value, key, packed, parse=shape == "json")
        yield record


def _items(column: BinaryColumn | None, begin: int, end: int) -> list[bytes | None]:
    return [None] * (end - begin) if column is None else column.slice(begin, end)


def _fill(
    record: RecordOut, value: bytes | None, key: bytes | None, packed: bytes | None, *, parse: bool
) -> None:
    if value is not None:
        record.value = _parsed(value) if parse else _text(value)
        if record.value is None:
            record.value_base64 = value
    if key is not None:
        record.key = _text(key)
        if record.key is None:
            record.key_base64 = key
    if packed:
        binary: dict[str, bytes] = {}
        for name, content in msgspec.msgpack.decode(packed, type=dict[str, bytes]).items():
            text = _text(content)
            if text is None:
                binary[name] = content
            else:
                record.headers[name] = text
        if binary:
            record.headers_base64 = binary


def _fill_base64(
    record: RecordOut, value: bytes | None, key: bytes | None, packed: bytes | None
) -> None:
    if value is not None:
        record.value_base64 = value
    if key is not None:
        record.key_base64 = key
    if packed:
        record.headers_base64 = msgspec.msgpack.decode(packed, type=dict[str, bytes])


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _parsed(value: bytes) -> Raw | None:
    """The value on one line if it is JSON; else None. JSON `null` itself stays null in the answer,
    with its bytes in value_base64, since a null value alone is a tombstone."""
    if value.strip() == b"null":
        return None
    try:
        value.decode()  # the formatter copies text without looking into it
        return Raw(msgspec.json.format(value, indent=-1))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

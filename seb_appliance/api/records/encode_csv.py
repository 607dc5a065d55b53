"""Records as CSV (RFC 4180): from a read's result to bytes, a part at a time.

The columns are the fields of a record in JSON. Texts stand in quotes; a field without anything in
it, not even quotes, is null.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from seb_appliance.api.records.encode_json import RecordOut, ValueShape, record_parts
from seb_appliance.broker.values import ReadResult

HEADER_ROW: Final = b",".join(map(str.encode, RecordOut.__struct_fields__)) + b"\r\n"

_encode: Final = msgspec.json.Encoder().encode


def csv_parts(result: ReadResult, shape: ValueShape) -> Iterator[bytes]:
    """The rows, without the header row."""
    return map(_rows, record_parts(result, shape))


def _rows(records: list[RecordOut]) -> bytes:
    columns: tuple[Iterable[str], ...] = (
        [str(record.offset) for record in records],
        [record.timestamp for record in records],
        [_quoted(record.key) for record in records],
        [_quoted(record.value) for record in records],
        [_object(record.headers) for record in records],
        [_base64(record.key_base64) for record in records],
        [_base64(record.value_base64) for record in records],
        [_object(record.headers_base64) for record in records],
    )
    rows = map(",".join, zip(*columns, strict=True))
    return "".join([f"{row}\r\n" for row in rows]).encode()


def _quoted(text: str | Raw | None) -> str:
    if text is None:
        return ""
    if isinstance(text, Raw):
        text = bytes(text).decode()
    return '"' + text.replace('"', '""') + '"'


def _object(headers: dict[str, str] | dict[str, bytes] | UnsetType) -> str:
    if headers is UNSET:
        return ""
    return _quoted(_encode(headers).decode()) if headers else "{}"


def _base64(content: bytes | UnsetType) -> str:
    return "" if content is UNSET else base64.b64encode(content).decode()

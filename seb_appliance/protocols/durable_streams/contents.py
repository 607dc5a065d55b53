"""The bodies of streams: the values of an append, and the records of a read."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from seb_appliance import limits
from seb_appliance.api.encoding.record_json import (
    check_numbers,
    compact_json,
    text_of,
    too_many_records,
)
from seb_appliance.broker.values import ReadResult
from seb_appliance.errors import BadJsonError

# Of records, made without a break: at most a few milliseconds, if each must be parsed.
_RECORDS_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 128 * limits.KIB
_DATA_BYTES: Final = 48 * limits.KIB  # of an event, without a break; a multiple of 3, for base64
_list_decoder: Final = msgspec.json.Decoder(list[msgspec.Raw])


def json_values(body: bytes, *, may_be_none: bool) -> list[bytes]:
    """A JSON value as one record, or the items of a list as one each, on one line; a list without
    items only where there `may_be_none`. Raises BadJsonError, RequestTooLargeError."""
    compact = compact_json(body)
    if compact is None:
        raise BadJsonError("The body is not JSON in UTF-8; this stream accepts only JSON.")
    check_numbers(compact)
    if not compact.startswith(b"["):
        return [compact]
    values = _items(compact)
    if not values and not may_be_none:
        raise BadJsonError("The list is empty; send at least one value.")
    return values


def _items(compact: bytes) -> list[bytes]:
    """Of a list. Raises RequestTooLargeError."""
    if compact.count(b",") < limits.RECORDS_PER_REQUEST_MAX:  # then no counting is needed
        return [bytes(item) for item in _list_decoder.decode(compact)]
    try:
        found = msgspec.structs.astuple(_bounded_decoder().decode(compact))
    except msgspec.ValidationError as error:
        raise too_many_records() from error
    return [bytes(item) for item in found if item is not UNSET]


@cache
def _bounded_decoder() -> msgspec.json.Decoder[msgspec.Struct]:
    """Stops at the first item that is too many: a list of `0,0,…` would take 70 times its size. A
    struct can be written as a list, and this one has as many members as a request may have
    records."""
    members = [
        (f"_{i}", msgspec.Raw | UnsetType, UNSET) for i in range(limits.RECORDS_PER_REQUEST_MAX)
    ]
    struct = msgspec.defstruct("Items", members, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct)


def byte_parts(result: ReadResult) -> Iterator[bytes]:
    """The records' values, to be joined."""
    for items in _some(result):
        yield b"".join(item for item in items if item is not None)


def json_parts(result: ReadResult) -> Iterator[bytes]:
    """A list of the records' values. Those that others appended and are no JSON come as a text, or
    as `{"value_base64": …}`; tombstones as null."""
    opening = b"["
    for items in _some(result):
        yield opening + b",".join(map(_shown, items))
        opening = b","
    yield b"[]" if opening == b"[" else b"]"


def _some(result: ReadResult) -> Iterator[list[bytes | None]]:
    """The records' values, some at a time, also where a few are much larger than others."""
    for piece in result.slices:
        values, begin = piece.batch.columns.values, piece.begin
        starts = values.starts[piece.begin : piece.end + 1].tolist()
        while begin < piece.end:
            most_bytes = starts[begin - piece.begin] + _BYTES_AT_ONCE
            end = piece.begin + bisect_right(starts, most_bytes) - 1
            end = max(begin + 1, min(end, begin + _RECORDS_AT_ONCE))
            yield values.slice(begin, end)
            begin = end


def event_data(result: ReadResult, *, json: bool, in_base64: bool) -> Iterator[bytes]:
    """The records as the data of one `data` event, to be joined."""
    content = b"".join(json_parts(result) if json else byte_parts(result))
    parts = (content[at : at + _DATA_BYTES] for at in range(0, len(content), _DATA_BYTES))
    yield b"event: data\ndata:"
    yield from map(base64.b64encode, parts) if in_base64 else _lines(parts)
    yield b"\n\n"


def _lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Each line has a field of its own, or one could be forged. A reader takes one space behind the
    colon away: where that would be the line's own, it gets another."""
    begins_line, ended_by_cr = True, False
    for part in parts:
        rest = part[1:] if ended_by_cr and part.startswith(b"\n") else part  # of one \r\n
        text = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = text.replace(b"\n ", b"\n  ").replace(b"\n", b"\ndata:")
        yield b" " + text if begins_line and rest.startswith(b" ") else text
        begins_line, ended_by_cr = part.endswith((b"\r", b"\n")), part.endswith(b"\r")


def _shown(value: bytes | None) -> bytes:
    if value is None:
        return b"null"
    compact = compact_json(value)
    if compact is not None:
        return compact
    text = text_of(value)
    return msgspec.json.encode({"value_base64": value} if text is None else text)

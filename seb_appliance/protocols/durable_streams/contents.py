"""The bodies of streams: the values of an append, and the records of a read."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from seb_appliance import limits
from seb_appliance.api.encoding.record_encoding import listed, steps, unless_large
from seb_appliance.api.encoding.record_json import (
    check_numbers,
    compact_json,
    text_of,
    too_many_records,
)
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.values import ReadResult
from seb_appliance.errors import BadJsonError

# Of records, made without a break: at most a few milliseconds, since each is parsed.
_RECORDS_AT_ONCE: Final = 256
_DATA_BYTES: Final = 48 * limits.KIB  # of an event, without a break; a multiple of 3, for base64
_BEGIN: Final = b"event: data\ndata:"
_END: Final = b"\n\n"
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
    for piece in result.slices:
        for begin, end in steps(piece):
            items = piece.batch.columns.values.slice(begin, end)
            yield b"".join(item for item in items if item is not None)


# The offsets of values that are large, and the values on one line; None if they are no JSON.
ReadApart: TypeAlias = Mapping[int, bytes | None]


async def read_apart(parser: Parser, owner: str, result: ReadResult) -> ReadApart:
    """What would take too long while others wait. Raises OverloadedError, RequestTooLargeError."""
    found: dict[int, bytes | None] = {}
    for piece in result.slices:
        for begin, _ in steps(piece, _RECORDS_AT_ONCE):
            value = piece.batch.columns.values.get(begin) or b""  # a large one is alone
            if len(value) > limits.JSON_SHOWN_BYTES_MAX:
                compact = await parser.parse_apart(owner, compact_json, value)
                found[piece.batch.offsets()[begin]] = compact
    return found


def json_parts(result: ReadResult, apart: ReadApart) -> Iterator[bytes]:
    """A list of the records' values. Those that others appended and are no JSON come as a text, or
    as `{"value_base64": …}`; tombstones as null."""

    def shown(offset: int, value: bytes | None) -> object:
        if value is None:
            return None
        is_large = len(value) > limits.JSON_SHOWN_BYTES_MAX
        compact = apart[offset] if is_large else compact_json(value)
        if compact is not None:
            return unless_large(Raw(compact))
        text = text_of(value)
        return {"value_base64": unless_large(value)} if text is None else unless_large(text)

    return listed(
        (
            list(
                map(
                    shown,
                    piece.batch.offsets()[begin:end],
                    piece.batch.columns.values.slice(begin, end),
                )
            )
            for piece in result.slices
            for begin, end in steps(piece, _RECORDS_AT_ONCE)
        ),
        closing=b"]",
    )


def json_event(parts: Iterable[bytes]) -> Iterator[bytes]:
    """A list in JSON, which is one line, as the data of a `data` event, to be joined."""
    return chain([_BEGIN], parts, [_END])


def event_data(result: ReadResult, *, in_base64: bool) -> Iterator[bytes]:
    """The records as the data of one `data` event, to be joined."""
    content = b"".join(byte_parts(result))
    parts = (content[at : at + _DATA_BYTES] for at in range(0, len(content), _DATA_BYTES))
    yield _BEGIN
    yield from map(base64.b64encode, parts) if in_base64 else _lines(parts)
    yield _END


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

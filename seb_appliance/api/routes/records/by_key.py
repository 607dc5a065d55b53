"""Reads by record key: questions (from the query, or from a JSON body for keys too long for a URL),
and `view=latest`, the newest record of each record key, by pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import CSV, JSON, NDJSON, Headers
from seb_appliance.api.encoding.record_encoding import (
    RecordsOut,
    ValueShape,
    framed,
    record_parts,
)
from seb_appliance.api.routes.records.ranges import Next
from seb_appliance.api.server.auth import Call
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.record_keys.queries import ViewPage, ViewPlace
from seb_appliance.broker.values import ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError, RecordTooLargeError
from seb_appliance.formats.columns import Bytes

_SWITCH: Final = ("true", "false")


class _Question(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`fresh`: wait until the index has reached the log end."""

    fresh: bool = False


T = TypeVar("T", bound=_Question)


class KeysQuestion(_Question, kw_only=True):
    """Which record keys there are: those that begin with a prefix, behind another one."""

    prefix: str | None = None
    prefix_base64: str | None = None
    after: str | None = None
    after_base64: str | None = None
    limit: int = limits.KEYS_PER_PAGE_DEFAULT


class LatestQuestion(_Question, kw_only=True):
    """The record key to look up: `key`, or `key_base64` for any bytes."""

    key: str | None = None
    key_base64: str | None = None
    values: str = "text"


class HistoryQuestion(LatestQuestion, kw_only=True):
    """The records of one record key below an offset, newest first."""

    before: int | None = None
    limit: int = limits.KEYS_PER_PAGE_DEFAULT


def switch(query: dict[str, str], name: str) -> bool:
    """`true` or `false`; false when it is absent."""
    return parameters.choice(query.get(name, "false"), name, _SWITCH) == "true"


def question(kind: type[T], query: dict[str, str]) -> T:
    """The request of this kind from the query. Raises BadParameterError."""
    asked: dict[str, Any] = {**query, "fresh": switch(query, "fresh")}
    if "limit" in query:
        asked["limit"] = parameters.integer(
            query["limit"], "limit", smallest=1, largest=limits.KEYS_PER_PAGE_MAX
        )
    if "before" in query:
        asked["before"] = parameters.integer(
            query["before"], "before", smallest=0, largest=limits.OFFSET_MAX
        )
    return kind(**asked)


def check_numbers(asked: KeysQuestion | HistoryQuestion) -> None:
    """The request from a JSON body. Raises BadParameterError."""
    if not 1 <= asked.limit <= limits.KEYS_PER_PAGE_MAX:
        raise BadParameterError(f"limit must be from 1 to {limits.KEYS_PER_PAGE_MAX}.")
    before = getattr(asked, "before", None)
    if before is not None and not 0 <= before <= limits.OFFSET_MAX:
        raise BadParameterError("before must be an offset (0 to 2^53-1).")


def key_bytes(text: str | None, base64_text: str | None, name: str = "key") -> bytes:
    """A required record key. Raises BadParameterError, RecordTooLargeError."""
    key = optional_bytes(text, base64_text, name)
    if key is None:
        raise BadParameterError(
            f"Send the record key: {name}=… (percent-encoded UTF-8), or {name}_base64=… for any "
            "bytes."
        )
    return key


def optional_bytes(text: str | None, base64_text: str | None, name: str) -> bytes | None:
    """The bytes of `name` or `name_base64`; None when neither is given."""
    if text is not None and base64_text is not None:
        raise BadParameterError(f"Send {name} or {name}_base64, not both.")
    if base64_text is not None:
        try:
            given = base64.b64decode(base64_text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadParameterError(f"{name}_base64 is not base64.") from error
    elif text is not None:
        given = text.encode()
    else:
        return None
    if len(given) > limits.RECORD_KEY_BYTES_MAX:
        raise RecordTooLargeError(f"A record key has at most {limits.RECORD_KEY_BYTES_MAX} bytes.")
    return given


VIEWS: Final = ("latest",)
_OF_A_READ: Final = ("offset", "until", "wait", "key", "key_base64")
_OF_A_VIEW: Final = ("cursor", "fresh")
_encode: Final = msgspec.msgpack.Encoder().encode
_Number = Annotated[int, msgspec.Meta(ge=0, le=limits.OFFSET_MAX)]
_decode: Final = msgspec.msgpack.Decoder(tuple[_Number, _Number, _Number]).decode


class ViewOut(RecordsOut):
    """`RecordsOut` with a cursor. All pages show the topic as of `next_offset`. `next_cursor` is
    null on the last page; then continue with a plain read from `next_offset`."""

    next_cursor: str | None


def is_view(call: Call) -> bool:
    """Whether a view is requested. Raises BadParameterError for parameters that exclude each
    other."""
    named = call.query.get("view")
    for name in _OF_A_VIEW if named is None else _OF_A_READ:
        if name in call.query:
            which = "needs" if named is None else "does not go with"
            raise BadParameterError(f"{name} {which} view=latest.")
    if named is None:
        return False
    parameters.choice(named, "view", VIEWS)
    return True


def place_of(cursor: str | None) -> ViewPlace | None:
    """Raises BadParameterError for an invalid cursor."""
    if cursor is None:
        return None
    try:
        return ViewPlace(*_decode(base64.urlsafe_b64decode(f"{cursor}==".encode("ascii"))))
    except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError, ValueError) as error:
        raise BadParameterError(
            "The cursor is invalid: send the next_cursor of an earlier answer."
        ) from error


def cursor_of(place: ViewPlace | None) -> str | None:
    if place is None:
        return None
    packed = _encode((place.topic_id, place.as_of, place.begin))
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


async def whole_view(
    broker: Broker, topic: str, call: Call, part: ReadRequest
) -> tuple[ReadResult, Next]:
    """The first page, and what gives those that follow."""
    page = await read_view(broker, topic, call, part)

    async def follow(before: ReadResult) -> ReadResult | None:
        nonlocal page
        if page.next_place is None:
            return None
        page = await broker.record_keys.view(
            before.topic, page.next_place, part.max_records, part.max_bytes, fresh=False
        )
        return page.result

    return page.result, follow


async def read_view(broker: Broker, topic: str, call: Call, wanted: ReadRequest) -> ViewPage:
    """The page that a query asks for."""
    return await broker.record_keys.view(
        topic,
        place_of(call.query.get("cursor")),
        wanted.max_records,
        wanted.max_bytes,
        fresh=switch(call.query, "fresh"),
        owner=call.owner,
    )


def check_type(chosen: str) -> None:
    """Records that are chosen by their keys come one by one. Raises BadParameterError."""
    if chosen not in (JSON.decode(), NDJSON.decode(), CSV.decode()):
        raise BadParameterError("Reads by record key are available only as JSON, NDJSON and CSV.")


def view_headers(page: ViewPage, headers: Headers) -> Headers:
    cursor = cursor_of(page.next_place)
    return headers if cursor is None else [*headers, (b"seb-next-cursor", cursor.encode())]


def view_json(page: ViewPage, shape: ValueShape) -> Iterable[Bytes]:
    """The body of the answer, in parts that are made when they are asked for."""
    result = page.result
    frame = ViewOut(
        result.topic,
        result.topic_id,
        [],
        result.next_offset,
        result.log_start_offset,
        result.log_end_offset,
        cursor_of(page.next_place),
    )
    return framed(frame, record_parts(result, shape))

"""`GET /v1/topics/{topic}/records?view=latest`: the newest record of each record key, by pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final

import msgspec

from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import CSV, JSON, NDJSON, Headers
from seb_appliance.api.encoding.record_encoding import RecordsOut, ValueShape, framed
from seb_appliance.api.routes.records.key_parameters import switch
from seb_appliance.api.routes.records.ranges import Next
from seb_appliance.api.server.auth import Call
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.record_keys.queries import ViewPage, ViewPlace
from seb_appliance.broker.values import ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError
from seb_appliance.formats.columns import Bytes

VIEWS: Final = ("latest",)
_OF_A_READ: Final = ("offset", "until", "wait", "key", "key_base64")
_OF_A_VIEW: Final = ("cursor", "fresh")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, int, int]).decode


class ViewOut(RecordsOut):
    """As `RecordsOut`. `next_cursor` is null on the last page; then read on from `next_offset`, as
    of which all pages are."""

    next_cursor: str | None


def is_view(call: Call) -> bool:
    """Whether a view is asked for. Raises BadParameterError for what does not go together."""
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
    """Raises BadParameterError for what is no cursor of ours."""
    if cursor is None:
        return None
    try:
        return ViewPlace(*_decode(base64.urlsafe_b64decode(f"{cursor}==".encode("ascii"))))
    except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError, ValueError) as error:
        raise BadParameterError("The cursor is not one that an answer gave.") from error


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
        raise BadParameterError(
            "Records chosen by their keys come as JSON, NDJSON or CSV, and in no other format."
        )


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
    return framed(frame, result, shape)

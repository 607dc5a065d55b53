"""The parameters and the answer of a read, for all routes that read records and for the fast
lane."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import (
    ALL_FORMATS,
    COLUMNS,
    FORMATS,
    Answer,
    Headers,
)
from seb_appliance.api.encoding.formats import answer_format, negotiate
from seb_appliance.api.encoding.record_encoding import (
    HEADER_ROW,
    VALUE_SHAPES,
    ValueShape,
    csv_parts,
    json_parts,
    ndjson_parts,
)
from seb_appliance.api.server.auth import (
    AnyRequest,
    Call,
    look_again,
)
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError
from seb_appliance.formats.columns import Bytes
from seb_appliance.tasks import while_connected

T = TypeVar("T")

READ_QUERY: Final = frozenset(
    {"offset", "until", "max_records", "max_bytes", "wait", "values", "format", "topic_id"}
)

_LIMITS: Final = frozenset({"max_records", "max_bytes"})
_REGISTERED: Final = (COLUMNS, FORMATS["cloudevents"])
VARY: Final = (b"vary", b"Accept, Accept-Encoding, Authorization")
NO_STORE: Final = (b"cache-control", b"no-store")


def read_request(call: Call) -> ReadRequest:
    """What a consumer asks for. Raises BadParameterError."""
    query = call.query
    until = query.get("until")
    return ReadRequest(
        start=parameters.position(query.get("offset", "earliest"), "offset"),
        until=None if until is None else parameters.end_position(until, "until"),
        max_records=parameters.integer(
            query.get("max_records", str(limits.FETCH_RECORDS_DEFAULT)),
            "max_records",
            smallest=1,
            largest=limits.FETCH_RECORDS_MAX,
        ),
        max_bytes=parameters.size_bytes(
            query.get("max_bytes", str(limits.FETCH_BYTES_DEFAULT)),
            "max_bytes",
            largest=limits.FETCH_BYTES_MAX,
        ),
        wait_ms=parameters.duration_ms(query.get("wait", "0"), "wait", largest=limits.WAIT_MS_MAX),
        owner=call.owner,
        topic_id=parameters.topic_id(query),
        as_stored=query.get("format") == "batch",
    )


def answer_type(call: Call, formats: Mapping[str, str] = ALL_FORMATS) -> str:
    """The media type of the answer: `format` decides, else Accept. `formats`: what there is.

    Raises BadParameterError, NotAcceptableError.
    """
    named = call.query.get("format")
    if named is None:
        chosen = negotiate(call.headers.get(b"accept"), tuple(formats.values()))
    else:
        chosen = formats[parameters.choice(named, "format", tuple(formats))]
    if chosen in (FORMATS["batch"], FORMATS["cloudevents"]) and "values" in call.query:
        raise BadParameterError(
            f"The parameter values applies only to JSON formats, not to {chosen}."
        )
    if chosen in _REGISTERED:
        answer_format(chosen).check()
    return chosen


def is_whole(call: Call, chosen: str) -> bool:
    """Whether the answer has all records of the range, without a page limit. Readers of rows and
    columns do not check whether there are more."""
    return chosen == COLUMNS or (
        chosen in (FORMATS["ndjson"], FORMATS["csv"]) and not _LIMITS & call.query.keys()
    )


def value_shape(query: dict[str, str]) -> ValueShape:
    return parameters.choice(query.get("values", "text"), "values", VALUE_SHAPES)


def encode(result: ReadResult, chosen: str, shape: ValueShape) -> Iterable[Bytes]:
    """The body of a consume answer, in parts that are made when they are asked for: stored bytes as
    they are, JSON a millisecond at a time."""
    if chosen == FORMATS["batch"]:
        return [piece.stored for piece in result.slices]
    if chosen == FORMATS["cloudevents"]:
        page = answer_format(chosen).page
        assert page is not None, chosen
        return page(result)
    if chosen == FORMATS["ndjson"]:
        return ndjson_parts(result, shape)
    if chosen == FORMATS["csv"]:
        return chain([HEADER_ROW], csv_parts(result, shape))
    return json_parts(result, shape)


def topic_id_of(result: ReadResult) -> tuple[bytes, bytes]:
    return b"seb-topic-id", str(result.topic_id).encode()


def consumed_headers(result: ReadResult, chosen: str) -> Headers:
    charset = b"; charset=utf-8" if chosen.startswith("text/") else b""
    return [
        (b"content-type", chosen.encode() + charset),
        topic_id_of(result),
        (b"seb-next-offset", str(result.next_offset).encode()),
        (b"seb-log-end-offset", str(result.log_end_offset).encode()),
        NO_STORE,
        VARY,
    ]


def held(
    broker: Broker, call: Call, headers: Headers, body: Sequence[Bytes], *, status: int = 200
) -> Answer:
    """An answer whose bytes count in the key's share of `Broker.reading` until they are taken."""
    reservation = broker.reading.reserve(call.owner, sum(map(len, body)))
    return Answer(status, headers, body, reservation=reservation)


async def encoded(broker: Broker, call: Call, headers: Headers, parts: Iterable[Bytes]) -> Answer:
    """As `held`, for parts that are encoded one by one: other tasks run between them, and encoding
    stops when there is no room for the answer."""
    if isinstance(parts, list):
        return held(broker, call, headers, parts)
    body: list[Bytes] = []
    reservation = broker.reading.reserve(call.owner, 0)
    try:
        for part in parts:
            if body:
                await asyncio.sleep(0)
            reservation.grow(len(part))
            body.append(part)
    except BaseException:
        reservation.release()
        raise
    return Answer(200, headers, body, reservation=reservation)


async def unless_gone(
    reading: Coroutine[Any, Any, T], broker: Broker, request: AnyRequest, *, waits: bool
) -> T:
    """The result of the read, if the API key is still valid afterwards. One that `waits` ends
    when the client leaves. It may be all that an idle appliance is asked, so it looks for a newer
    writer."""
    broker.look_for_newer_writer()
    result = await (while_connected(reading, request.receive) if waits else reading)
    look_again(request.scope)
    return result

"""The Go broker's own API, for the clients that it has: `/records`, `/record`, `/topic`.

Its topics and records are ours, and so are the limits, the API keys and the promises; only the wire
is its own (docs/GO-BROKER.md).
"""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import replace
from typing import Any, Final

import msgspec
from litestar import Request, Response

from seb_appliance.api.encoding.answers import (
    JSON,
    RAW,
    Answer,
    Headers,
    format_time,
    produced_timing,
)
from seb_appliance.api.encoding.parameters import read_query
from seb_appliance.api.encoding.problems import (
    answer_error_as,
    error_of,
    is_for_admin,
    problem,
    problem_headers,
)
from seb_appliance.api.encoding.record_bodies import refuse_record_headers
from seb_appliance.api.openapi.parameters import Json, header, query
from seb_appliance.api.openapi.shared import (
    BYTES,
    DURABILITY_HEADER,
    READ_ERRORS,
    TIME,
    WRITE_ERRORS,
)
from seb_appliance.api.routes.records.consume import read_one
from seb_appliance.api.routes.records.produce import timeout_ms
from seb_appliance.api.routes.records.reading import held, unless_gone
from seb_appliance.api.routes.route import (
    Content,
    ErrorTypes,
    Reply,
    RequestContext,
    Services,
    route,
)
from seb_appliance.api.server.auth import AnyRequest, Call, enter, look_again, may_see
from seb_appliance.api.server.bodies import read_body
from seb_appliance.api.server.plain_requests import (
    ParsedHead,
    PlainConsume,
    PlainProduce,
    PlainProtocol,
)
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import From, NewRecords, ReadRequest, ReadResult
from seb_appliance.errors import (
    OffsetOutOfRangeError,
    OverloadedError,
    RecordNotFoundError,
    RecordTooLargeError,
    SebError,
    ShuttingDownError,
    TopicNotFoundError,
    UnauthenticatedError,
)
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.contents import Produced
from seb_appliance.protocols.go import wire
from seb_appliance.protocols.go.wire import (
    boundary_of,
    offsets_body,
    parse_records,
    records_answer,
)

# Errors as the Go broker tells them: the status, and a sentence as plain text.


TEXT: Final = b"text/plain; charset=utf-8"

# What its clients may look for.
_WORDS: Final[dict[type[SebError], str]] = {
    UnauthenticatedError: "invalid auth",
    TopicNotFoundError: "topic not found",
}


def text_of(error: SebError, *, to_admin: bool = False) -> bytes:
    """Details of the inside go to admin keys only."""
    known = _WORDS.get(type(error))
    return (known or str(problem(error, "", to_admin=to_admin)["detail"])).encode()


def text_headers(error: SebError) -> Headers:
    """As `problem_headers`, of a text."""
    headers = [header for header in problem_headers(error) if header[0] != b"content-type"]
    return [(b"content-type", TEXT), *headers]


def answer_in_text(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
    """The exception handler of these routes."""
    error = error_of(request, exception)
    body = text_of(error, to_admin=is_for_admin(request))
    return answer_error_as(error, "text/plain", body)  # Litestar adds the charset


_NEWEST: Final = ReadRequest(start=From(latest=True), max_records=1, max_bytes=1)


class GoOffsets(msgspec.Struct):
    """The answer to an append: the offset of each record, in order."""

    offsets: list[int]


class GoTopic(msgspec.Struct):
    """`next_offset` is the one that the next record gets; `latest_commit_at` when the newest record
    was stored, or the topic made."""

    next_offset: int
    latest_commit_at: str


_TAG: Final = "The Go broker's API"
_TEXT_ERRORS: Final = "Errors are told as plain text. "


def _needed(name: str, description: str, example: Any, **schema: Any) -> Json:
    return {**query(name, description, example, **schema), "required": True}


_TOPIC: Final = _needed("topic-name", "Name of the topic.", "orders.eu", type="string")
_OFFSET: Final = _needed("offset", "An offset.", 17, type="integer", minimum=0)

_MULTIPART: Final = {
    "multipart/form-data": Content(
        schema={
            "type": "object",
            "description": "Exactly these parts, in this order.",
            "properties": {
                "sizes": {
                    "type": "string",
                    "description": "A JSON list: how many bytes each record has (uint32).",
                },
                "records": {**BYTES, "description": "The records, back to back."},
            },
            "required": ["sizes", "records"],
        },
        example={"sizes": "[5,5]", "records": "helloworld"},
    )
}

_FIRST_USE: Final[ErrorTypes] = (*READ_ERRORS, OverloadedError, ShuttingDownError)


def _enter(request: AnyRequest, services: Services, known: frozenset[str]) -> Call:
    return enter(request, services.broker, known, token_of=wire.go_token_of)


@route(
    "POST",
    "/records",
    "goAddRecords",
    tag=_TAG,
    summary="Append records, in the Go broker's format",
    description=_TEXT_ERRORS
    + "All records of a request get consecutive offsets, or none is stored. A missing topic is "
    "created if the API key may `manage` it.",
    parameters=[_TOPIC],
    body=_MULTIPART,
    replies={
        201: Reply(
            description="Stored",
            content={"application/json": Content(struct=GoOffsets, example={"offsets": [17, 18]})},
            headers=DURABILITY_HEADER,
        )
    },
    errors=(*WRITE_ERRORS, RecordTooLargeError, TopicNotFoundError),
    error_media=["text/plain"],
    authenticate=_enter,
)
async def add_records(ctx: RequestContext) -> object:
    topic = wire.topic_name(ctx.call.query)
    ctx.broker.authorize(ctx.call.key, "produce", topic)
    refuse_record_headers(ctx.call.headers)
    deadline_ms = timeout_ms(ctx.call.headers)
    boundary = boundary_of(ctx.call.headers.get(b"content-type"))
    body, reservation = await read_body(
        ctx.request.receive,
        ctx.call.headers,
        ctx.call.owner,
        ctx.broker.pending,
        ctx.options.max_request_bytes,
    )
    ctx.options.failpoints.reach("K1")
    try:
        records = await ctx.options.parser.parse(
            ctx.call.key.api_key_id, parse_records, body, boundary
        )
        look_again(ctx.request.scope)
    except BaseException:
        reservation.release()
        raise
    appended = await ctx.broker.appends.append(
        ctx.call.key, topic, records, reservation, deadline_ms, address=ctx.call.address
    )
    assert appended.offset is not None, appended
    timing = produced_timing(appended.window_s, appended.put_s)
    headers = _append_headers(appended.durability, timing)
    answer = offsets_body(appended.offset, appended.count)
    return Answer(201, headers, answer, failpoints=ctx.options.failpoints)


def _append_headers(durability: str, timing: bytes) -> Headers:
    return [
        (b"content-type", JSON),
        (b"seb-durability", durability.encode()),
        (b"server-timing", timing),
    ]


@route(
    "GET",
    "/records",
    "goGetRecords",
    tag=_TAG,
    summary="Read records from an offset on, in the Go broker's format",
    description=_TEXT_ERRORS
    + "Answers as soon as the offset exists. The next offset is `offset` plus the number of "
    "records in the answer. A record that compaction removed is sent as an empty record.",
    parameters=[
        _TOPIC,
        _OFFSET,
        query("max-records", "At most so many; 0 means 10.", 10, type="integer", minimum=0),
        query("max-bytes", "Soft; 0: no limit.", 0, type="integer", minimum=0),
        query("timeout", "How long to wait for the offset, as a Go duration; at most 1m.", "10s"),
        header("Accept", "Required: `multipart/form-data` or `*/*`."),
    ],
    replies={
        200: Reply(description="Records", content=_MULTIPART),
        206: Reply(description="The offset did not exist before the timeout", content=_MULTIPART),
    },
    errors=_FIRST_USE,
    error_media=["text/plain"],
    authenticate=_enter,
)
async def get_records(ctx: RequestContext) -> object:
    topic = wire.topic_name(ctx.call.query)
    ctx.broker.authorize(ctx.call.key, "consume", topic)
    wire.check_accept(ctx.call.headers.get(b"accept"))
    wanted = wire.read_request(ctx.call.query, ctx.call.owner)
    await _make_on_first_use(ctx.broker, ctx.call, topic)
    reading, waits = _once_there(ctx.broker, topic, wanted), wanted.wait_ms > 0
    result = await unless_gone(reading, ctx.broker, ctx.request, waits=waits)
    assert wanted.start.offset is not None, wanted
    status, headers, parts = records_answer(
        result, wanted.start.offset, wanted.max_records, ctx.options.new_boundary()
    )
    return held(ctx.broker, ctx.call, headers, parts, status=status)


@route(
    "GET",
    "/record",
    "goGetRecord",
    tag=_TAG,
    summary="Read one record, in the Go broker's format",
    description=_TEXT_ERRORS + "The value alone.",
    parameters=[_TOPIC, _OFFSET],
    replies={
        200: Reply(
            description="The record",
            content={"application/octet-stream": Content(schema=BYTES)},
        )
    },
    errors=(*READ_ERRORS, RecordNotFoundError),
    error_media=["text/plain"],
    authenticate=_enter,
)
async def get_record(ctx: RequestContext) -> object:
    topic = wire.topic_name(ctx.call.query)
    ctx.broker.authorize(ctx.call.key, "consume", topic)
    offset = wire.offset(ctx.call.query)
    result = await read_one(ctx.broker, topic, From(offset=offset))
    piece = result.slices[0]
    value = piece.batch.columns.values.get(piece.begin) or b""
    headers: Headers = [(b"content-type", RAW), (b"cache-control", b"no-store")]
    return held(ctx.broker, ctx.call, headers, [value])


@route(
    "GET",
    "/topic",
    "goGetTopic",
    tag=_TAG,
    summary="Show the end of a topic, in the Go broker's format",
    description=_TEXT_ERRORS
    + "`latest_commit_at` is when the newest record was stored, or when an empty topic was "
    "created.",
    parameters=[_TOPIC],
    replies={
        200: Reply(
            description="The topic",
            content={
                "application/json": Content(
                    struct=GoTopic, example={"next_offset": 3, "latest_commit_at": TIME}
                )
            },
        )
    },
    errors=_FIRST_USE,
    error_media=["text/plain"],
    authenticate=_enter,
)
async def get_topic(ctx: RequestContext) -> object:
    topic = wire.topic_name(ctx.call.query)
    if not may_see(ctx.broker, ctx.call.key, topic):
        ctx.broker.authorize(ctx.call.key, "consume", topic)
    await _make_on_first_use(ctx.broker, ctx.call, topic)
    written_us = await ctx.broker.topics.last_write_us(topic)
    view = ctx.broker.topics.get(topic)
    latest = format_time(view.created_us if written_us is None else written_us)
    body = f'{{"next_offset":{view.log_end_offset},"latest_commit_at":"{latest}"}}'
    return Answer(200, [(b"content-type", JSON)], body.encode())


async def _make_on_first_use(broker: Broker, call: Call, topic: str) -> None:
    """A reader may come before the first producer, if the key may make the topic."""
    if broker.may(call.key, "manage", topic):
        await broker.topics.make_on_first_use(topic, call.actor)


async def _once_there(broker: Broker, topic: str, wanted: ReadRequest) -> ReadResult:
    """The read, as soon as its offset is there; without records when that takes too long.

    The offset may lie beyond the log end: then it takes more than one record until it is there.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + wanted.wait_ms / 1000
    while True:
        left_ms = max(0, math.ceil((give_up_s - loop.time()) * 1000))
        try:
            return await broker.read(topic, replace(wanted, wait_ms=left_ms))
        except OffsetOutOfRangeError:
            next_record = await broker.read(
                topic, replace(_NEWEST, wait_ms=left_ms, owner=wanted.owner)
            )
        if not next_record.slices:
            return next_record


_URL: Final = re.compile(rb"/records\?(.*)")
# So many digits are an offset in any case; it is there once, or the head fails.
_FROM_OFFSET: Final = re.compile(rb"GET /records\?(?:[a-z-]+=[^& ]*&)*offset=([0-9]{1,15})(?=[ &])")
# A boundary of these characters needs no quotes. Content-Type is there once, or the head fails.
_BOUNDARY: Final = re.compile(
    rb"POST /records\?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*?"
    rb"[Cc]ontent-[Tt]ype: multipart/form-data; boundary=([0-9A-Za-z'+_.-]{1,70})(?=\r\n)"
)


class GoPlain(PlainProtocol):
    """Appends and reads. A client draws a new boundary for each body, and reads from another offset
    each time, so a head is remembered without them."""

    varying = (_FROM_OFFSET, _BOUNDARY)

    def owns(self, url: bytes) -> bool:
        return _URL.fullmatch(url) is not None

    def token_of(self, authorization: bytes | None) -> str:
        return wire.go_token_of(authorization)

    def read(self, head: ParsedHead) -> PlainProduce | PlainConsume | None:
        """Reads of any size are plain: values go out as they lie in the batches, and 10,000 sizes
        take about a millisecond."""
        query_string = head.url.partition(b"?")[2]
        if head.method == b"GET" and not head.length:
            query = read_query(query_string, wire.RECORDS_QUERY)
            topic = wire.topic_name(query)
            head.access.authorize(head.key, "consume", topic)
            wire.check_accept(head.headers.get(b"accept"))
            return PlainConsume(
                key=head.key,
                until_us=head.until_us,
                protocol=self,
                topic=topic,
                wanted=wire.read_request(query, head.key.api_key_id),
                chosen=wire.MULTIPART,
            )
        if head.method != b"POST" or head.length is None:
            return None
        if any(name.startswith(b"seb-") for name in head.headers):
            return None
        topic = wire.topic_name(read_query(query_string, wire.TOPIC_QUERY))
        head.access.authorize(head.key, "produce", topic)
        return PlainProduce(
            key=head.key,
            until_us=head.until_us,
            content_length=head.length,
            protocol=self,
            topic=topic,
            headers={},
            boundary=boundary_of(head.headers.get(b"content-type")),
        )

    def records_of(
        self,
        broker: Broker,  # noqa: ARG002 - as PlainProtocol has it
        plain: PlainProduce,
        body: bytes,
    ) -> bytes | NewRecords:
        records = parse_records(body, plain.boundary)
        return records.values[0] or b"" if len(records.values) == 1 else records

    def produced(
        self, durability: str, append: Produced, timing: bytes
    ) -> tuple[int, Headers, bytes]:
        return 201, _append_headers(durability, timing), offsets_body(append.offset, append.count)

    def consumed(
        self, result: ReadResult, wanted: ReadRequest, boundary: str
    ) -> tuple[int, Headers, list[Bytes]]:
        assert wanted.start.offset is not None, wanted
        return records_answer(result, wanted.start.offset, wanted.max_records, boundary)

    def refused(
        self,
        error: SebError,
        problem: bytes,  # noqa: ARG002 - errors are plain text here
        *,
        to_admin: bool,
    ) -> tuple[Headers, bytes]:
        return text_headers(error), text_of(error, to_admin=to_admin)


ROUTES: Final = [add_records, get_records, get_record, get_topic]

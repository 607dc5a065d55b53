"""The Go broker's own API, for the clients that it has: `/records`, `/record`, `/topic`.

Its topics and records are ours, and so are the limits, the API keys and the promises; only the wire
is its own (docs/GO-BROKER.md).
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any, Final

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import JSON, RAW, Answer, Headers
from seb_appliance.api.encoding.parameters import refuse_unsupported
from seb_appliance.api.encoding.problems import error_of, is_for_admin, problem, problem_headers
from seb_appliance.api.encoding.record_bodies import refuse_record_headers
from seb_appliance.api.encoding.times import format_time
from seb_appliance.api.routes.records.consume import held, read_one, unless_gone
from seb_appliance.api.routes.records.produce import produced_timing, timeout_ms
from seb_appliance.api.server.auth import AnyRequest, Call, enter, look_again, may_see
from seb_appliance.api.server.bodies import read_body
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from seb_appliance.errors import (
    OffsetOutOfRangeError,
    SebError,
    TopicNotFoundError,
    UnauthenticatedError,
)
from seb_appliance.protocols.go import parameters as go_parameters
from seb_appliance.protocols.go.multipart import (
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
    headers = {name.decode(): value.decode() for name, value in text_headers(error)}
    del headers["content-type"]  # Litestar wants it apart, and adds the charset
    return Response(body, status_code=error.status, headers=headers, media_type="text/plain")


_NEWEST: Final = ReadRequest(start=From(latest=True), max_records=1, max_bytes=1)


class GoOffsets(msgspec.Struct):
    """The answer to an append: the offset of each record, in order."""

    offsets: list[int]


class GoTopic(msgspec.Struct):
    """`next_offset` is the one that the next record gets; `latest_commit_at` when the newest record
    was stored, or the topic made."""

    next_offset: int
    latest_commit_at: str


def router(broker: Broker, options: ApiOptions) -> Router:
    """The routes, which refuse in plain text."""

    @post("/records")
    async def add_records(request: AnyRequest) -> ASGIApp:
        call = _enter(request, broker, go_parameters.TOPIC_QUERY)
        topic = go_parameters.topic_name(call.query)
        broker.authorize(call.key, "produce", topic)
        refuse_unsupported(call.headers)
        refuse_record_headers(call.headers)
        deadline_ms = timeout_ms(call.headers)
        boundary = boundary_of(call.headers.get(b"content-type"))
        body, reservation = await read_body(
            request.receive, call.headers, call.owner, broker.pending, options.max_request_bytes
        )
        options.failpoints.reach("K1")
        try:
            records = await options.parser.parse(call.key.api_key_id, parse_records, body, boundary)
            look_again(request.scope)
        except BaseException:
            reservation.release()
            raise
        appended = await broker.appends.append(
            call.key, topic, records, reservation, deadline_ms, address=call.address
        )
        assert appended.offset is not None, appended
        headers: Headers = [
            (b"content-type", JSON),
            (b"seb-durability", appended.durability.encode()),
            (b"server-timing", produced_timing(appended.window_s, appended.put_s)),
        ]
        answer = offsets_body(appended.offset, appended.count)
        return Answer(201, headers, answer, failpoints=options.failpoints)

    @get("/records")
    async def get_records(request: AnyRequest) -> ASGIApp:
        call = _enter(request, broker, go_parameters.RECORDS_QUERY)
        topic = go_parameters.topic_name(call.query)
        broker.authorize(call.key, "consume", topic)
        go_parameters.check_accept(call.headers.get(b"accept"))
        wanted = go_parameters.read_request(call.query, call.owner)
        await _make_on_first_use(broker, call, topic)
        result = await unless_gone(
            _once_there(broker, topic, wanted), request, waits=wanted.wait_ms > 0
        )
        assert wanted.start.offset is not None, wanted
        status, headers, parts = records_answer(
            result, wanted.start.offset, wanted.max_records, options.new_boundary()
        )
        return held(broker, call, headers, parts, status=status)

    return Router(
        path="/",
        route_handlers=[add_records, get_records, *_one_and_topic(broker)],
        exception_handlers={Exception: answer_in_text},
    )


def _one_and_topic(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/record")
    async def get_record(request: AnyRequest) -> ASGIApp:
        call = _enter(request, broker, go_parameters.RECORD_QUERY)
        topic = go_parameters.topic_name(call.query)
        broker.authorize(call.key, "consume", topic)
        offset = go_parameters.offset(call.query)
        result = await read_one(broker, topic, From(offset=offset))
        piece = result.slices[0]
        value = piece.batch.columns.values.get(piece.begin) or b""
        headers: Headers = [(b"content-type", RAW), (b"cache-control", b"no-store")]
        return held(broker, call, headers, [value])

    @get("/topic")
    async def get_topic(request: AnyRequest) -> ASGIApp:
        call = _enter(request, broker, go_parameters.TOPIC_QUERY)
        topic = go_parameters.topic_name(call.query)
        if not may_see(broker, call.key, topic):
            broker.authorize(call.key, "consume", topic)
        await _make_on_first_use(broker, call, topic)
        written_us = await broker.topic_lists.last_write_us(topic)
        view = broker.topics.get(topic)
        latest = format_time(view.created_us if written_us is None else written_us)
        body = f'{{"next_offset":{view.log_end_offset},"latest_commit_at":"{latest}"}}'
        return Answer(200, [(b"content-type", JSON)], body.encode())

    return [get_record, get_topic]


def _enter(request: AnyRequest, broker: Broker, known: frozenset[str]) -> Call:
    return enter(request, broker, known, token_of=go_parameters.go_token_of)


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

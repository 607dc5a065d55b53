"""PUT, POST and DELETE of Durable Streams, and plain appends (`StreamPlain`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from seb_appliance.api.encoding.answers import Answer, Headers
from seb_appliance.api.openapi.parameters import header
from seb_appliance.api.routes.route import (
    Reply,
    RequestContext,
    route,
)
from seb_appliance.api.server.auth import (
    AnyRequest,
    Call,
    authorize_to_delete,
    authorize_to_fork,
    look_again,
)
from seb_appliance.api.server.bodies import read_body
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.api.server.plain_requests import ParsedHead, PlainProduce, PlainProtocol
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.streams.admission import (
    StreamAppend,
    StreamAppended,
    WantedStream,
    is_json,
    media_type_of,
)
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    BadParameterError,
    IdempotencyMismatchError,
    SebError,
    SequenceGapError,
    StaleEpochError,
    StreamClosedError,
    StreamConflictError,
)
from seb_appliance.formats.contents import Produced
from seb_appliance.protocols.durable_streams.contents import json_values
from seb_appliance.protocols.durable_streams.wire import (
    ANY_BODY,
    CLOSED,
    CLOSED_HEADER,
    CROSS_ORIGIN,
    NEXT_HEADER,
    OF_STREAM,
    PATH,
    PREFIX,
    SAYS,
    TAG,
    WRITE,
    content_type,
    described,
    enter,
    next_offset,
    topic_of,
    wanted_append,
    wanted_stream,
)


def _url(request: AnyRequest, call: Call) -> bytes:
    """The URL of the stream as it was requested; clients of the protocol need the full URL."""
    scheme = request.scope["scheme"].encode()
    return b"%b://%b%b" % (scheme, call.headers.get(b"host", b""), request.scope["raw_path"])


async def _body(
    request: AnyRequest, call: Call, broker: Broker, options: ApiOptions
) -> tuple[bytes, Reservation]:
    read = await read_body(
        request.receive, call.headers, call.owner, broker.pending, options.max_request_bytes
    )
    options.failpoints.reach("K1")
    return read


def _authorize_to_create(broker: Broker, call: Call, topic: str, wanted: WantedStream) -> None:
    """Raises ForbiddenError."""
    broker.authorize(call.key, "manage", topic)
    if wanted.fork is not None:
        authorize_to_fork(broker, call.key, wanted.fork.topic)


def _authorize_records(
    broker: Broker, call: Call, topic: str, body: bytes, reservation: Reservation
) -> None:
    """A body needs `produce`. Raises ForbiddenError, and releases `reservation` then."""
    if body and not broker.may(call.key, "produce", topic):
        reservation.release()
        broker.authorize(call.key, "produce", topic)


async def _json_values(
    call: Call, options: ApiOptions, body: bytes, *, may_be_none: bool
) -> list[bytes]:
    owner = call.key.api_key_id
    return await options.parser.parse(owner, json_values, body, may_be_none=may_be_none)


async def _first_values(
    broker: Broker,
    call: Call,
    options: ApiOptions,
    wanted: WantedStream,
    body: bytes,
    reservation: Reservation,
) -> list[bytes]:
    """The records that a stream begins with; `reservation` is released if they are refused."""
    try:
        content_type = wanted.content_type
        if wanted.fork is not None and content_type is None and body:
            content_type = broker.streams.get(wanted.fork.topic).state.content_type
        if body and is_json(content_type or ""):
            return await _json_values(call, options, body, may_be_none=True)
    except BaseException:
        reservation.release()
        raise
    return [body] if body else []


async def _with_values(
    broker: Broker,
    call: Call,
    options: ApiOptions,
    topic: str,
    asked: StreamAppend,
    body: bytes,
) -> StreamAppend:
    """The append with its records. Raises BadParameterError, BadJsonError, TopicNotFoundError."""
    view = broker.streams.get(topic)
    if not body:
        if not asked.close:
            raise BadParameterError("The append has no body. Send data, or Stream-Closed.")
        return replace(asked, content_type=None)
    if asked.content_type is None:
        raise BadParameterError("Send the Content-Type of the stream.")
    of_stream = view.state.content_type
    agree = media_type_of(asked.content_type) == media_type_of(of_stream)
    if agree and is_json(of_stream):
        values = await _json_values(call, options, body, may_be_none=False)
        return replace(asked, values=values)
    return replace(asked, values=[body])


def _told(
    broker: Broker, topic: str, asked: StreamAppend, error: SequenceGapError
) -> SequenceGapError | BadParameterError:
    """A gap at the beginning of a new epoch is an error, because no later request can fill it."""
    assert asked.producer is not None
    known = broker.streams.producer_epoch(topic, asked.producer)
    if known is not None and known < asked.producer.epoch:
        return BadParameterError("A new Producer-Epoch must begin with Producer-Seq 0.")
    return error


def _appended(asked: StreamAppend, done: StreamAppended, options: ApiOptions) -> Answer:
    headers: Headers = [CROSS_ORIGIN, next_offset(done.next_offset)]
    if done.closed:
        headers.append(CLOSED)
    if asked.producer is not None:
        headers.append((b"producer-epoch", str(asked.producer.epoch).encode()))
        headers.append((b"producer-seq", str(done.newest_seq).encode()))
    fresh = asked.producer is not None and not done.replayed and bool(asked.values)
    return Answer(200 if fresh else 204, headers, failpoints=options.failpoints)


@route(
    "PUT",
    "/v1/stream/{path}",
    "createStream",
    summary="Create a stream",
    description="A repeated request with the same headers changes nothing. A plain topic becomes a "
    "stream. " + SAYS,
    parameters=[
        PATH,
        header(
            "Content-Type",
            "Content type of the stream. With `application/json`, each JSON value is one record.",
        ),
        header(
            "Stream-TTL",
            "The stream is deleted after this many seconds without a read or an append.",
            "3600",
        ),
        header("Stream-Expires-At", "The stream is deleted at this time.", "2026-12-24T18:00:00Z"),
        header("Stream-Closed", "`true`: the stream is closed after this body.", "true"),
        header(
            "Stream-Forked-From",
            "Path of the stream to fork: the new stream shares its records.",
            "/v1/stream/a",
        ),
        header("Stream-Fork-Offset", "Share the records below this offset; default: all."),
        header(
            "Stream-Fork-Sub-Offset",
            "How many further records of a JSON stream, or bytes of the next record, it shares.",
            "2",
        ),
    ],
    body=ANY_BODY,
    body_required=False,
    replies={
        201: Reply(description="Made", headers={**OF_STREAM, "Location": "Its URL."}),
        200: Reply(description="It is there already", headers=OF_STREAM),
    },
    errors=(*WRITE, StreamConflictError),
    tag=TAG,
    authenticate=enter,
    refuses=False,
)
async def create(ctx: RequestContext) -> object:
    topic = topic_of(ctx.request.scope["raw_path"])
    wanted = wanted_stream(ctx.call.headers)
    _authorize_to_create(ctx.broker, ctx.call, topic, wanted)
    body, reservation = await _body(ctx.request, ctx.call, ctx.broker, ctx.options)
    _authorize_records(ctx.broker, ctx.call, topic, body, reservation)
    values = await _first_values(ctx.broker, ctx.call, ctx.options, wanted, body, reservation)
    try:
        look_again(ctx.request.scope)
    except BaseException:
        reservation.release()
        raise
    view, made = await ctx.broker.streams.create(topic, wanted, values, reservation, ctx.call.actor)
    headers = described(view)
    if made:
        headers.append((b"location", _url(ctx.request, ctx.call)))
    return Answer(201 if made else 200, headers, failpoints=ctx.options.failpoints)


@route(
    "POST",
    "/v1/stream/{path}",
    "appendToStream",
    summary="Append to a stream, or close it",
    description="Each item of a JSON list becomes a record. `Stream-Closed` closes the stream "
    "after this append, or without one if there is no body; it needs the grant `manage`. A "
    "plain topic cannot be closed: make it a stream with `PUT` first. " + SAYS,
    parameters=[
        PATH,
        header("Content-Type", "The stream's."),
        header("Stream-Seq", "Must be greater than the last one in byte order.", "00017"),
        header("Stream-Closed", "`true`: the stream is closed.", "true"),
        header(
            "Producer-Id",
            "Name of an idempotent producer. Needs Producer-Epoch and Producer-Seq.",
            "sensor-1",
        ),
        header("Producer-Epoch", "From 0 on.", "0"),
        header("Producer-Seq", "From 0 on in each epoch.", "17"),
        header(
            "Producer-Checksum",
            "If a seq is repeated with another checksum, the request is refused.",
            "277483",
        ),
    ],
    body=ANY_BODY,
    body_required=False,
    replies={
        204: Reply(description="Stored, now or before", headers={**NEXT_HEADER, **CLOSED_HEADER}),
        200: Reply(description="Stored, for an idempotent producer", headers=NEXT_HEADER),
    },
    errors=(
        *WRITE,
        StreamClosedError,
        StreamConflictError,
        IdempotencyMismatchError,
        StaleEpochError,
        SequenceGapError,
    ),
    tag=TAG,
    authenticate=enter,
    refuses=False,
)
async def append(ctx: RequestContext) -> object:
    topic = topic_of(ctx.request.scope["raw_path"])
    asked = wanted_append(ctx.call.headers, ctx.call.key.api_key_id)
    ctx.broker.authorize(ctx.call.key, "manage" if asked.close else "produce", topic)
    body, reservation = await _body(ctx.request, ctx.call, ctx.broker, ctx.options)
    _authorize_records(ctx.broker, ctx.call, topic, body, reservation)
    try:
        asked = await _with_values(ctx.broker, ctx.call, ctx.options, topic, asked, body)
        look_again(ctx.request.scope)
    except BaseException:
        reservation.release()
        raise
    try:
        done = await ctx.broker.streams.append(topic, asked, reservation, ctx.call.actor)
    except SequenceGapError as error:
        raise _told(ctx.broker, topic, asked, error) from error
    return _appended(asked, done, ctx.options)


@route(
    "DELETE",
    "/v1/stream/{path}",
    "deleteStream",
    summary="Delete a stream and its topic",
    parameters=[PATH],
    replies={204: Reply(description="Gone")},
    errors=WRITE,
    tag=TAG,
    authenticate=enter,
    refuses=False,
)
async def delete_stream(ctx: RequestContext) -> object:
    topic = topic_of(ctx.request.scope["raw_path"])
    authorize_to_delete(ctx.broker, ctx.call.key, topic)
    await ctx.broker.streams.delete(topic, ctx.call.actor)
    return Answer(204, [CROSS_ORIGIN])


class StreamPlain(PlainProtocol):
    """Appends with no header of the protocol but Content-Type."""

    def owns(self, url: bytes) -> bool:
        return url.startswith(PREFIX)

    def read(self, head: ParsedHead) -> PlainProduce | None:
        named = content_type(head.headers)
        if head.method != b"POST" or b"?" in head.url or not head.length or named is None:
            return None
        if any(name.startswith((b"stream-", b"producer-")) for name in head.headers):
            return None
        topic = topic_of(head.url)
        head.access.authorize(head.key, "produce", topic)
        return PlainProduce(
            key=head.key,
            until_us=head.until_us,
            content_length=head.length,
            protocol=self,
            topic=topic,
            headers={b"content-type": named.encode()},
        )

    def records_of(
        self, broker: Broker, plain: PlainProduce, body: bytes
    ) -> bytes | NewRecords | None:
        """None where the stream does not exist, or has another type. Raises BadJsonError,
        RequestTooLargeError."""
        named = plain.headers[b"content-type"].decode("latin-1")
        if not broker.streams.takes(plain.topic, named):
            return None
        if not is_json(named):
            return body
        values = json_values(body, may_be_none=False)
        return values[0] if len(values) == 1 else NewRecords(list[bytes | None](values))

    def produced(
        self,
        durability: str,  # noqa: ARG002 - as PlainProtocol has it
        append: Produced,
        timing: bytes,  # noqa: ARG002
    ) -> tuple[int, Headers, bytes]:
        return 204, [CROSS_ORIGIN, next_offset(append.offset + append.count)], b""

    def refused(self, error: SebError, problem: bytes, *, to_admin: bool) -> tuple[Headers, bytes]:
        headers, body = super().refused(error, problem, to_admin=to_admin)
        return [*headers, CROSS_ORIGIN], body


ROUTES: Final = [create, append, delete_stream]

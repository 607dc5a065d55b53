"""PUT, POST and DELETE of Durable Streams: made, appended to and closed, deleted."""

from __future__ import annotations

from dataclasses import replace

from litestar import delete, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import Answer, Headers
from seb_appliance.api.server.auth import (
    AnyRequest,
    Call,
    authorize_to_delete,
    authorize_to_fork,
    look_again,
)
from seb_appliance.api.server.bodies import read_body
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.streams.admission import (
    StreamAppend,
    StreamAppended,
    WantedStream,
    is_json,
    media_type_of,
)
from seb_appliance.errors import BadParameterError, SequenceGapError
from seb_appliance.protocols.durable_streams.answers import (
    CLOSED,
    CROSS_ORIGIN,
    described,
    next_offset,
)
from seb_appliance.protocols.durable_streams.contents import json_values
from seb_appliance.protocols.durable_streams.headers import wanted_append, wanted_stream
from seb_appliance.protocols.durable_streams.names import topic_of
from seb_appliance.protocols.durable_streams.stream_auth import enter


def routes(broker: Broker, options: ApiOptions) -> list[HTTPRouteHandler]:
    @put("/{path:path}", status_code=200)
    async def create(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, options)
        topic = topic_of(request.scope["raw_path"])
        wanted = wanted_stream(call.headers)
        _authorize_to_create(broker, call, topic, wanted)
        body, reservation = await _body(request, call, broker, options)
        _authorize_records(broker, call, topic, body, reservation)
        values = await _first_values(broker, call, options, wanted, body, reservation)
        try:
            look_again(request.scope)
        except BaseException:
            reservation.release()
            raise
        view, made = await broker.streams.create(topic, wanted, values, reservation, call.actor)
        headers = described(view)
        if made:
            headers.append((b"location", _url(request, call)))
        return Answer(201 if made else 200, headers, failpoints=options.failpoints)

    @post("/{path:path}", status_code=200)
    async def append(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, options)
        topic = topic_of(request.scope["raw_path"])
        asked = wanted_append(call.headers)
        broker.authorize(call.key, "manage" if asked.close else "produce", topic)
        body, reservation = await _body(request, call, broker, options)
        _authorize_records(broker, call, topic, body, reservation)
        try:
            asked = await _with_values(broker, call, options, topic, asked, body)
            look_again(request.scope)
        except BaseException:
            reservation.release()
            raise
        try:
            done = await broker.streams.append(topic, asked, reservation, call.actor)
        except SequenceGapError as error:
            raise _told(broker, topic, asked, error) from error
        return _appended(asked, done, options)

    @delete("/{path:path}", status_code=200)  # the answer itself says 204
    async def delete_stream(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, options)
        topic = topic_of(request.scope["raw_path"])
        authorize_to_delete(broker, call.key, topic)
        await broker.streams.delete(topic, call.actor)
        return Answer(204, [CROSS_ORIGIN])

    return [create, append, delete_stream]


def _url(request: AnyRequest, call: Call) -> bytes:
    """Of the stream, as it was asked for: the protocol's clients want all of it."""
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
            raise BadParameterError("An append without a body means nothing.")
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
    """A gap at the beginning of a new epoch is a mistake, and no gap that could be filled."""
    assert asked.producer is not None
    known = broker.streams.producer_epoch(topic, asked.producer.producer_id)
    if known is not None and known < asked.producer.epoch:
        return BadParameterError("A new Producer-Epoch begins with Producer-Seq 0.")
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

"""`POST /v1/topics/{topic}/records`: one record, or many, all of them or none."""

from __future__ import annotations

from typing import Final

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.encoding import conditions
from seb_appliance.api.encoding.answers import JSON, Answer, Headers, json_line
from seb_appliance.api.encoding.parameters import duration_ms, refuse_unsupported
from seb_appliance.api.encoding.record_parsing import body_kind, parse_cloud_events, parse_records
from seb_appliance.api.encoding.times import format_time
from seb_appliance.api.encoding.trace_context import RequestTrace
from seb_appliance.api.server.auth import AnyRequest, enter, look_again
from seb_appliance.api.server.bodies import read_body
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import Appended, NewBatches, NewRecords
from seb_appliance.errors import BadParameterError
from seb_appliance.protocols.cloud_events.requests import mode_of

REPLAYED: Final = (b"idempotency-replayed", b"true")


class Produced(msgspec.Struct):
    """The answer to an append: offsets are `offset` to `last_offset`, both inclusive. All that is
    null was stored by a seq of the producer that is too long ago to be remembered."""

    topic: str
    topic_id: int
    offset: int | None
    count: int | None
    last_offset: int | None
    timestamp: str | None


def timeout_ms(headers: dict[bytes, bytes]) -> int | None:
    """`Seb-Timeout`, which shortens the appliance's own; None when it is not there."""
    given = headers.get(b"seb-timeout")
    if given is None:
        return None
    timeout = duration_ms(
        given.decode("latin-1"), "Seb-Timeout", largest=limits.ACK_TIMEOUT_MS_DEFAULT
    )
    if timeout == 0:
        raise BadParameterError("Seb-Timeout is at least 1ms.")
    return timeout


def produced_body(topic: str, topic_id: int, offset: int, count: int, timestamp_us: int) -> bytes:
    """`Produced` as JSON. Topic names need no escapes."""
    return (
        f'{{"topic":"{topic}","topic_id":{topic_id},"offset":{offset},"count":{count},'
        f'"last_offset":{offset + count - 1},"timestamp":"{format_time(timestamp_us)}"}}\n'
    ).encode()


def produced_timing(window_s: float, put_s: float) -> bytes:
    return f"window;dur={window_s * 1000:.1f}, put;dur={put_s * 1000:.1f}".encode()


def produced(appended: Appended, agreed: Conditions) -> tuple[int, Headers, bytes]:
    """Status, headers and body. A producer's duplicate is answered with 200, all else with 201."""
    topic, topic_id, offset = appended.topic, appended.topic_id, appended.offset
    if offset is None:
        body = json_line(Produced(topic, topic_id, None, None, None, None))
    else:
        body = produced_body(topic, topic_id, offset, appended.count, appended.timestamp_us)
    headers = [(b"content-type", JSON), (b"seb-durability", appended.durability.encode())]
    status = 201
    if not appended.replayed:
        timing = produced_timing(appended.window_s, appended.put_s)
        headers.append((b"server-timing", timing))
    elif agreed.request is not None:
        headers.append(REPLAYED)
    else:
        status = 200
    return status, headers, body


def routes(broker: Broker, options: ApiOptions) -> list[HTTPRouteHandler]:
    @post("/v1/topics/{topic:str}/records")
    async def produce(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, conditions.QUERY)
        topic: str = request.scope["path_params"]["topic"]
        broker.authorize(call.key, "produce", topic)
        refuse_unsupported(call.headers, conditions.UNDERSTOOD | {b"ce-specversion"})
        asked = conditions.read_conditions(call)
        mode = mode_of(call.headers)
        kind = None if mode is not None else body_kind(call.headers.get(b"content-type"))
        deadline_ms = timeout_ms(call.headers)
        trace = RequestTrace.of(options.traces, call.headers)
        body, reservation = await read_body(
            request.receive, call.headers, call.owner, broker.pending, options.max_request_bytes
        )
        options.failpoints.reach("K1")
        try:
            owner, route = call.key.api_key_id, request.scope["path"]
            records: NewRecords | NewBatches
            if mode is not None:
                records, named = await parse_cloud_events(
                    options.parser, owner, mode, body, call.headers
                )
                agreed = await asked.of_events(call, route, body, records, named)
            else:
                assert kind is not None
                records = await parse_records(
                    options.parser, owner, kind, body, call.headers, options.max_request_bytes
                )
                agreed = await asked.conditions(call, route, body)
            look_again(request.scope)
        except BaseException:
            reservation.release()
            raise
        try:
            appended = await broker.appends.append(
                call.key, topic, records, reservation, deadline_ms, agreed, address=call.address
            )
        except BaseException as error:
            if trace is not None:
                trace.failed("produce", topic, error)
            raise
        if trace is not None:
            trace.produced(appended)
        status, headers, answer = produced(appended, agreed)
        return Answer(status, headers, answer, failpoints=options.failpoints)

    return [produce]

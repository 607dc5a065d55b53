"""`POST /v1/topics/{topic}/records`: one record, or many, all of them or none."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api import conditions
from seb_appliance.api.answers import JSON, Answer, Headers, json_line
from seb_appliance.api.auth import AnyRequest, Call, enter
from seb_appliance.api.bodies import read_body
from seb_appliance.api.media_types import media_type
from seb_appliance.api.options import ApiOptions
from seb_appliance.api.parameters import duration_ms, refuse_unsupported
from seb_appliance.api.records.cloud_events import (
    BATCHED,
    STRUCTURED,
    Mode,
    mode_of,
    parse_events,
    to_records,
)
from seb_appliance.api.records.produce_bodies import (
    parse_batches,
    parse_single,
    refuse_record_headers,
)
from seb_appliance.api.records.produce_json import parse_json, parse_ndjson
from seb_appliance.api.times import format_time
from seb_appliance.api.trace_context import RequestTrace, keep_traceparent
from seb_appliance.broker.appending import Conditions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import Appended, NewBatches, NewRecords
from seb_appliance.errors import BadParameterError, UnsupportedMediaTypeError

BodyKind = Literal["single", "json", "ndjson", "batch"]

_KINDS: Final[dict[str, BodyKind]] = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/vnd.seb.batch": "batch",
    "application/octet-stream": "single",
    "application/x-www-form-urlencoded": "single",  # what plain `curl -d` sends
    "": "single",
}
_SINGLE_FAMILIES: Final = ("text/", "image/")
_CHECK_IN_THREAD_BYTES: Final = 64 * limits.KIB


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


def body_kind(content_type: bytes | None) -> BodyKind:
    """Raises UnsupportedMediaTypeError that says which would do."""
    named = media_type(content_type or b"")
    if named.startswith(_SINGLE_FAMILIES):
        return "single"
    if named not in _KINDS:
        raise UnsupportedMediaTypeError(
            f"{named[:100]!r} is not taken here. application/octet-stream, text/* and image/* make "
            "the body one record; application/json, application/x-ndjson and "
            "application/vnd.seb.batch hold many; so do CloudEvents.",
            supported=[*(kind for kind in _KINDS if kind), STRUCTURED, BATCHED],
        )
    return _KINDS[named]


async def parse(
    kind: BodyKind, body: bytes, headers: dict[bytes, bytes], max_bytes: int
) -> NewRecords | NewBatches:
    """The records of a body. Raises what the parsers raise."""
    if kind == "single":
        return keep_traceparent(parse_single(body, headers), headers)
    refuse_record_headers(headers)
    if kind == "json":
        return keep_traceparent(parse_json(body), headers)
    if kind == "ndjson":
        return keep_traceparent(parse_ndjson(body), headers)
    if len(body) > _CHECK_IN_THREAD_BYTES:
        return await asyncio.to_thread(parse_batches, body, max_bytes)
    return parse_batches(body, max_bytes)


async def _events(
    mode: Mode, call: Call, route: str, asked: conditions.Asked, body: bytes
) -> tuple[NewRecords | NewBatches, Conditions]:
    """The records of CloudEvents, and what tells a repeat. Raises what the parsers raise."""
    refuse_record_headers(call.headers)
    events = parse_events(mode, body, call.headers)
    records = to_records(events)
    named = [part for event in events for part in event.identity]
    return records, await asked.of_events(call, route, body, records, named)


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
            request.receive, call.headers, broker.pending, options.max_request_bytes
        )
        options.failpoints.reach("K1")
        try:
            if mode is not None:
                records, agreed = await _events(mode, call, request.scope["path"], asked, body)
            else:
                assert kind is not None
                records = await parse(kind, body, call.headers, options.max_request_bytes)
                agreed = await asked.conditions(call, request.scope["path"], body)
        except BaseException:
            reservation.release()
            raise
        try:
            appended = await broker.append(
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

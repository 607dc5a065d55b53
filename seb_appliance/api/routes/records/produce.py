"""`POST /v1/topics/{topic}/records`: one record, or many, all of them or none."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import conditions
from seb_appliance.api.encoding.answers import (
    JSON,
    Answer,
    Headers,
    json_line,
    produced_body,
    produced_timing,
)
from seb_appliance.api.encoding.formats import BODY_FORMATS
from seb_appliance.api.encoding.parameters import duration_ms
from seb_appliance.api.encoding.plain_bodies import BodyReader
from seb_appliance.api.encoding.record_bodies import (
    body_kind,
    delay,
    is_batch,
    parse_plain,
    parse_records,
    parse_registered,
)
from seb_appliance.api.encoding.record_json import Envelope
from seb_appliance.api.encoding.trace_context import RequestTrace
from seb_appliance.api.openapi.parameters import PRODUCE
from seb_appliance.api.openapi.shared import (
    BYTES,
    DURABILITY_HEADER,
    EVENT,
    EVENT_CONTENT,
    NEW_RECORD,
    REPLAYED_HEADER,
    SAFE_APPEND_ERRORS,
    TIME,
)
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    json_body,
    route,
)
from seb_appliance.api.server.auth import look_again
from seb_appliance.api.server.bodies import read_body
from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.values import Appended, NewBatches, NewRecords
from seb_appliance.errors import (
    BadBatchError,
    BadCloudEventError,
    BadParameterError,
    DelayTooLongError,
)

REPLAYED: Final = (b"idempotency-replayed", b"true")


class Produced(msgspec.Struct):
    """The answer to an append. The records have the offsets from `offset` to `last_offset`, both
    inclusive. Members are null for a producer's repeated seq that is too old to be remembered."""

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
        raise BadParameterError("Seb-Timeout must be at least 1ms.")
    return timeout


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


PRODUCED: Final = {
    "topic": "orders.eu",
    "topic_id": 3,
    "offset": 17,
    "count": 1,
    "last_offset": 17,
    "timestamp": TIME,
}
_NDJSON: Final = Content(
    schema={"type": "string", "description": "One Record object per line."},
    example='{"value":"a"}\n{"value":null,"key":"customer-7"}\n',
)
# openapi-python-client fails on a list in this choice of bodies, and leaves out what it refers to
# like this.
_ITEM: Final = (
    "#/paths/~1v1~1topics~1%7Btopic%7D~1records/post/requestBody/content/"
    "application~1cloudevents+json/schema"
)
_NEW_EVENTS: Final = Content(schema={"type": "array", "items": {"$ref": _ITEM}}, example=[EVENT])
_ONE_RECORD: Final = Content(schema=BYTES, example="hello")
_CURLS: Final = Content(
    schema={"type": "string", "description": "One record, as `curl -d` sends it."}, example="hello"
)


@route(
    "POST",
    "/v1/topics/{topic}/records",
    "produce",
    tag="Records",
    summary="Append records",
    description="All records of a request get consecutive offsets, or none is stored. 201 means "
    "that the bucket has them. 504 `outcome_unknown` means that they may be stored already or "
    "later: with an Idempotency-Key, or as an idempotent producer, send the same request again "
    "until it succeeds. CloudEvents 1.0 are stored with their data as the value and their "
    "attributes as record headers `ce_…`; in binary mode every Content-Type is accepted. An "
    "event with the same `source`, `id` and content is stored once, as with an Idempotency-Key.",
    parameters=PRODUCE,
    body={
        "application/octet-stream": _ONE_RECORD,
        "text/plain": _ONE_RECORD,
        "application/x-www-form-urlencoded": _CURLS,
        "application/json": Content(struct=Envelope, example={"records": [NEW_RECORD]}),
        "application/x-ndjson": _NDJSON,
        "application/ndjson": _NDJSON,
        "application/jsonl": _NDJSON,
        "application/vnd.seb.batch": Content(schema=BYTES),
        "application/cloudevents+json": EVENT_CONTENT,
        "application/cloudevents-batch+json": _NEW_EVENTS,
    },
    body_required=False,
    replies={
        201: Reply(
            description="Stored",
            content=json_body(Produced, PRODUCED),
            headers={
                **DURABILITY_HEADER,
                **REPLAYED_HEADER,
                "Server-Timing": "Milliseconds that the append waited in the window, and that "
                "the bucket's PUT took.",
            },
        ),
        200: Reply(
            description="The producer's seq was stored before. The offsets are null if five "
            "later seqs have been stored since",
            content=json_body(Produced, PRODUCED),
            headers=DURABILITY_HEADER,
        ),
    },
    errors=(*SAFE_APPEND_ERRORS, BadBatchError, BadCloudEventError, DelayTooLongError),
    grant="produce",
)
async def produce(ctx: RequestContext) -> object:
    call, options = ctx.call, ctx.options
    asked = conditions.read_conditions(call)
    other = next(((f, m) for f in BODY_FORMATS if (m := f.mode_of(call.headers))), None)
    reader = None if other is not None else _reader(ctx)
    kind = None if other or reader else body_kind(call.headers.get(b"content-type"))
    deadline_ms = timeout_ms(call.headers)
    trace = RequestTrace.of(options.traces, call.headers)
    body, reservation = await read_body(
        ctx.request.receive, call.headers, call.owner, ctx.broker.pending, options.max_request_bytes
    )
    options.failpoints.reach("K1")
    try:
        owner, path = call.key.api_key_id, ctx.request.scope["path"]
        records: NewRecords | NewBatches
        if other is not None:
            records, named = await parse_registered(
                options.parser, owner, *other, body, call.headers
            )
            agreed = await asked.of_events(call, path, body, records, named)
        elif reader is not None:
            records = await parse_plain(options.parser, owner, reader, body, call.headers)
            agreed = await asked.conditions(call, path, body)
        else:
            assert kind is not None
            records = await parse_records(
                options.parser, owner, kind, body, call.headers, options.max_request_bytes
            )
            agreed = await asked.conditions(call, path, body)
        if isinstance(records, NewRecords):
            delay(records, call.headers)
        look_again(ctx.request.scope)
    except BaseException:
        reservation.release()
        raise
    try:
        appended = await ctx.broker.appends.append(
            call.key, ctx.topic, records, reservation, deadline_ms, agreed, address=call.address
        )
    except BaseException as error:
        if trace is not None:
            trace.failed("produce", ctx.topic, error)
        raise
    if trace is not None:
        trace.produced(appended)
    status, headers, answer = produced(appended, agreed)
    return Answer(status, headers, answer, failpoints=options.failpoints)


def _reader(ctx: RequestContext) -> BodyReader | None:
    """How to read a body that is not in the envelope; record batches always are what they say.
    Raises BadParameterError."""
    default = ctx.broker.topics.body_of(ctx.topic)
    if is_batch(ctx.call.headers.get(b"content-type")):
        default = "envelope"
    return BodyReader.of(ctx.call.query, default)


ROUTES: Final = [produce]

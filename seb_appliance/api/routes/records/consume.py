"""`GET /v1/topics/{topic}/records` and `…/records/{offset}`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import quote_from_bytes

import msgspec
from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import (
    COLUMNS,
    EVENT,
    FORMATS,
    JSON,
    LIVE,
    RAW,
    Answer,
    Headers,
    format_time,
)
from seb_appliance.api.encoding.formats import Encoding, answer_format, negotiate
from seb_appliance.api.encoding.record_encoding import (
    HEADER_ROW,
    RecordOut,
    RecordsOut,
    ValueShape,
    csv_parts,
    ndjson_parts,
)
from seb_appliance.api.encoding.trace_context import RequestTrace
from seb_appliance.api.openapi.parameters import CONSUME_OR_FOLLOW, VALUES
from seb_appliance.api.openapi.shared import (
    BYTES,
    CSV_ROWS,
    EVENT_CONTENT,
    EVENTS,
    POSITIONS,
    READ_ERRORS,
    RECORD,
    TOPIC_ID,
)
from seb_appliance.api.routes.records.by_key import (
    ViewOut,
    check_type,
    is_view,
    optional_bytes,
    read_view,
    view_headers,
    view_json,
    whole_view,
)
from seb_appliance.api.routes.records.live import LiveRecords
from seb_appliance.api.routes.records.ranges import RangeAnswer, begin, part_of
from seb_appliance.api.routes.records.reading import (
    NO_STORE,
    VARY,
    answer_type,
    consumed_headers,
    encode,
    encoded,
    held,
    is_whole,
    read_request,
    topic_id_of,
    unless_gone,
    value_shape,
)
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    route,
)
from seb_appliance.api.server.auth import (
    AnyRequest,
    Call,
    authorize_to_read,
)
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.topics.topic import check_id
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.errors import (
    BadParameterError,
    BadRequestError,
    FollowerTooSlowError,
    KeyIndexOffError,
    NotAcceptableError,
    OffsetOutOfRangeError,
    RecordNotFoundError,
    RecordTooLargeError,
    TopicReplacedError,
)

_ONE: Final = (JSON.decode(), RAW.decode(), EVENT.decode())
_SAFE: Final = "/:;,=@+"  # left unescaped in header values


async def read_one(broker: Broker, topic: str, place: From) -> ReadResult:
    """A result with exactly the record asked for. Raises RecordNotFoundError."""
    try:
        result = await broker.read(topic, ReadRequest(start=place, max_records=1, max_bytes=1))
    except OffsetOutOfRangeError as error:
        raise RecordNotFoundError(error.detail, **error.data) from error
    wanted = place.offset if place.last is None else result.log_end_offset - place.last
    if not result.slices or result.slices[0].batch.offsets()[result.slices[0].begin] != wanted:
        raise RecordNotFoundError(
            f"Topic {topic!r} has no record at {wanted}; its log is {result.log_start_offset} to "
            f"{result.log_end_offset} (exclusive).",
            log_end_offset=result.log_end_offset,
        )
    return result


def raw_answer(broker: Broker, call: Call, result: ReadResult) -> Answer:
    """One record's value, with the rest of it in headers; 304 when the client has it already."""
    piece = result.slices[0]
    columns, i = piece.batch.columns, piece.begin
    value = columns.values.get(i)
    headers: Headers = [
        topic_id_of(result),
        (b"seb-offset", str(piece.batch.offsets()[i]).encode()),
        (b"seb-timestamp", format_time(columns.timestamps_us[i]).encode()),
        *_record_headers(piece),
    ]
    if value is None:
        headers.append((b"seb-tombstone", b"true"))
    crc = crc32c(repr(headers).encode(), crc32c(value or b""))
    etag = f'"{result.topic_id}-{crc:08x}"'.encode()
    headers += [(b"etag", etag), (b"cache-control", b"private, no-cache"), VARY]
    if_none_match = call.headers.get(b"if-none-match")
    if if_none_match is not None and etag in [tag.strip() for tag in if_none_match.split(b",")]:
        return Answer(304, headers)
    # Never a type that a browser would run.
    return held(broker, call, [(b"content-type", RAW), *headers], [value or b""])


def _record_headers(piece: BatchSlice) -> Headers:
    columns, i = piece.batch.columns, piece.begin
    headers: Headers = []
    key = None if columns.keys is None else columns.keys.get(i)
    if key is not None:
        headers.append((b"seb-key", quote_from_bytes(key, safe=_SAFE).encode()))
    packed = None if columns.headers is None else columns.headers.get(i)
    if packed:
        for name, content in msgspec.msgpack.decode(packed, type=dict[str, bytes]).items():
            quoted = quote_from_bytes(name.encode(), safe="").encode()
            text = quote_from_bytes(content, safe=_SAFE).encode()
            headers.append((b"seb-header-" + quoted, text))
    if sum(len(name) + len(content) for name, content in headers) > limits.HTTP_HEADER_BYTES_MAX:
        raise NotAcceptableError(
            "The record key and headers are too long for HTTP headers; ask for application/json.",
            supported=[JSON.decode()],
        )
    return headers


async def _view(
    broker: Broker, call: Call, topic: str, wanted: ReadRequest, chosen: str, shape: ValueShape
) -> Answer:
    check_id(topic, broker.topics.get(topic).topic_id, wanted.topic_id)
    page = await read_view(broker, topic, call, wanted)
    headers = view_headers(page, consumed_headers(page.result, chosen))
    if chosen == FORMATS["json"]:
        return await encoded(broker, call, headers, view_json(page, shape))
    return await encoded(broker, call, headers, encode(page.result, chosen, shape))


async def _whole(
    broker: Broker, call: Call, topic: str, chosen: str, shape: ValueShape, request: AnyRequest
) -> RangeAnswer:
    if request.scope["http_version"] == "1.0":
        raise BadRequestError(
            "An answer without max_records is chunked, which HTTP/1.0 does not support. Use "
            "HTTP/1.1, or send max_records with JSON, NDJSON or CSV."
        )
    wanted, part = read_request(call), part_of(call)
    key = optional_bytes(call.query.get("key"), call.query.get("key_base64"), "key")
    if chosen == COLUMNS:
        whole = answer_format(chosen).whole
        assert whole is not None, chosen
        encoding = await whole(call.query)
    elif chosen == FORMATS["csv"]:
        encoding = Encoding(lambda result: csv_parts(result, shape), HEADER_ROW)
    else:
        encoding = Encoding(lambda result: ndjson_parts(result, shape))
    if is_view(call):
        check_id(topic, broker.topics.get(topic).topic_id, wanted.topic_id)
        first, follow = await whole_view(broker, topic, call, part)
        headers = consumed_headers(first, chosen)
        return RangeAnswer(broker, call, headers, encoding, first, follow)
    most = wanted.max_records if "max_records" in call.query else None
    first, end, follow = await unless_gone(
        begin(
            lambda asked: (
                broker.read(topic, asked) if key is None else broker.read_key(topic, asked, key)
            ),
            wanted,
            part,
            most,
        ),
        broker,
        request,
        waits=wanted.wait_ms > 0,
    )
    headers = consumed_headers(replace(first, next_offset=end), chosen)
    if most is not None:  # then it is not known yet
        headers = [header for header in headers if header[0] != b"seb-next-offset"]
    return RangeAnswer(broker, call, headers, encoding, first, follow)


_LIVE: Final = Content(
    schema={"type": "string", "description": "One event a record; its data is a RecordOut."},
    example=f"id: 17\ndata: {msgspec.json.encode(RECORD).decode()}\n\n",
)


@route(
    "GET",
    "/v1/topics/{topic}/records",
    "consume",
    tag="Records",
    summary="Read records from an offset on",
    description="With `wait`, a reader at the log end is answered when the next record is "
    "stored. An answer in record batches has the stored bytes; its first and last batch may "
    "hold records outside the range.\n\nAs `text/event-stream`, the answer is a live stream: "
    "the records from `offset` on, then each new record. `id` is the offset, `data` the record "
    "as in JSON. A comment is sent at least every 15 s. The stream ends after `max_records` or "
    "before `until` (an offset), if given. If it cannot continue, it ends with an `error` event "
    "that has a problem document. `wait` and `max_bytes` are refused. `Seb-Next-Offset` is the "
    "offset where the stream begins; there is no `Seb-Log-End-Offset`.\n\nAs NDJSON, CSV or an "
    "Arrow stream (which needs pyarrow on the appliance), the answer has all records up to the "
    "log end at the time of the request, unless `until`, `max_records` or `max_bytes` (not for "
    "Arrow) limits it. If the appliance cannot finish such an answer, it closes the connection "
    "inside the chunked body.\n\nAs CloudEvents, records that were not stored as CloudEvents "
    "get id, source and type from their topic and offset.",
    parameters=CONSUME_OR_FOLLOW,
    replies={
        200: Reply(
            description="Records, perhaps none",
            content={
                "application/json": Content(
                    struct=RecordsOut | ViewOut,
                    example={
                        "topic": "orders.eu",
                        "topic_id": 3,
                        "records": [RECORD],
                        "next_offset": 18,
                        "log_start_offset": 0,
                        "log_end_offset": 18,
                    },
                ),
                "application/x-ndjson": Content(
                    schema={"type": "string", "description": "One RecordOut per line."}
                ),
                "text/csv": CSV_ROWS,
                "application/vnd.seb.batch": Content(schema=BYTES),
                "text/event-stream": _LIVE,
                "application/cloudevents-batch+json": EVENTS,
                "application/vnd.apache.arrow.stream": Content(schema=BYTES),
            },
            headers={**POSITIONS, "Seb-Next-Cursor": "Of a view: for its next page."},
        )
    },
    errors=(
        *READ_ERRORS,
        OffsetOutOfRangeError,
        TopicReplacedError,
        FollowerTooSlowError,
        KeyIndexOffError,
        RecordTooLargeError,
    ),
    grant=lambda ctx: authorize_to_read(ctx.broker, ctx.call, ctx.topic),
)
async def consume(ctx: RequestContext) -> object:
    call = ctx.call.without_defaults()
    chosen = answer_type(call)
    shape = value_shape(call.query)
    is_of_keys = is_view(call)
    key = optional_bytes(call.query.get("key"), call.query.get("key_base64"), "key")
    if is_of_keys or key is not None:
        check_type(chosen)
    if chosen == LIVE:
        return await LiveRecords.of(ctx.broker, ctx.topic, call, shape)
    if is_whole(call, chosen):
        return await _whole(ctx.broker, call, ctx.topic, chosen, shape, ctx.request)
    wanted = read_request(call)
    if is_of_keys:
        return await _view(ctx.broker, call, ctx.topic, wanted, chosen, shape)
    trace = RequestTrace.of(ctx.options.traces, call.headers)
    result = await unless_gone(
        ctx.broker.read(ctx.topic, wanted)
        if key is None
        else ctx.broker.read_key(ctx.topic, wanted, key),
        ctx.broker,
        ctx.request,
        waits=wanted.wait_ms > 0,
    )
    if trace is not None:
        trace.consumed(ctx.topic, result.next_offset)
    return await encoded(
        ctx.broker, call, consumed_headers(result, chosen), encode(result, chosen, shape)
    )


@route(
    "GET",
    "/v1/topics/{topic}/records/{offset}",
    "getRecord",
    tag="Records",
    summary="Read one record",
    description="As JSON, or its raw value with `Accept: application/octet-stream`, or "
    "as a CloudEvent.",
    parameters=[VALUES],
    replies={
        200: Reply(
            description="The record",
            content={
                "application/json": Content(struct=RecordOut, example=RECORD),
                "application/octet-stream": Content(schema=BYTES),
                "application/cloudevents+json": EVENT_CONTENT,
            },
            headers={
                **TOPIC_ID,
                "Seb-Offset": "Raw: its offset.",
                "Seb-Timestamp": "Raw: its timestamp.",
                "Seb-Key": "Raw: the record key, percent-encoded.",
                "Seb-Tombstone": "Raw: `true` for a null value.",
                "ETag": "Raw: for If-None-Match.",
            },
        ),
        304: Reply(description="Raw: the client already has this value (If-None-Match)"),
    },
    errors=(*READ_ERRORS, RecordNotFoundError),
    grant="consume",
)
async def consume_one(ctx: RequestContext) -> object:
    place = parameters.position(ctx.path["offset"], "offset")
    if place.offset is None and place.last is None:
        raise BadParameterError(
            "The path must end with an offset, or with -N for the N-th record from the end."
        )
    chosen = negotiate(ctx.call.headers.get(b"accept"), _ONE)
    shape = value_shape(ctx.call.query)
    result = await read_one(ctx.broker, ctx.topic, place)
    if chosen == RAW.decode():
        return raw_answer(ctx.broker, ctx.call, result)
    headers = [(b"content-type", chosen.encode()), topic_id_of(result), NO_STORE, VARY]
    if chosen == EVENT.decode():
        one = answer_format(chosen).one
        assert one is not None, chosen
        return await encoded(ctx.broker, ctx.call, headers, one(result))
    return await encoded(ctx.broker, ctx.call, headers, ndjson_parts(result, shape))


ROUTES: Final = [consume, consume_one]

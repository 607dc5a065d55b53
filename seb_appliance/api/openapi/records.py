"""The operations on records, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance.api.encoding.record_encoding import HEADER_ROW, RecordOut, RecordsOut
from seb_appliance.api.encoding.record_json import Envelope, Record
from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, ErrorTypes, Json, Operation, Reply, ref
from seb_appliance.api.routes.records.produce import Produced
from seb_appliance.api.routes.records.views import ViewOut
from seb_appliance.errors import (
    BadBatchError,
    BadCloudEventError,
    BadJsonError,
    BadNameError,
    CorruptObjectError,
    FencedError,
    FollowerTooSlowError,
    IdempotencyMismatchError,
    KeyIndexOffError,
    NotAcceptableError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    PreconditionFailedError,
    RecordNotFoundError,
    RecordTooLargeError,
    RequestTooLargeError,
    SequenceGapError,
    ShuttingDownError,
    StaleEpochError,
    StandbyError,
    StoreUnavailableError,
    StreamClosedError,
    TopicNotFoundError,
    TopicReplacedError,
    UnsupportedMediaTypeError,
)
from seb_appliance.protocols.cloud_events.requests import REQUIRED

BYTES: Final[Json] = {"type": "string", "format": "binary"}
TIME: Final = "2026-11-21T10:00:00.000123Z"
RECORD: Final = {
    "offset": 17,
    "timestamp": TIME,
    "key": "customer-7",
    "value": '{"total": 21}',
    "headers": {"source": "checkout"},
}
NEW_RECORD: Final = {
    "value": {"total": 21},
    "key": "customer-7",
    "headers": {"source": "checkout"},
}
_PRODUCED: Final = {
    "topic": "orders.eu",
    "topic_id": 3,
    "offset": 17,
    "count": 1,
    "last_offset": 17,
    "timestamp": TIME,
}
DURABILITY: Final = {"Seb-Durability": "What stored means: `s3`, `disk` or `memory`."}
REPLAYED: Final = {
    "Idempotency-Replayed": "`true`: the request was done before, and this is its answer."
}
_NDJSON: Final = Content(
    schema={"type": "string", "description": "One Record object per line."},
    example='{"value":"a"}\n{"value":null,"key":"customer-7"}\n',
)
CSV_ROWS: Final = Content(
    schema={"type": "string", "description": "RFC 4180; a column for each field of RecordOut."},
    example=f'{HEADER_ROW.decode()}17,{TIME},"customer-7","{{""total"": 21}}",{{}},,,\r\n',
)
_LIVE: Final = Content(
    schema={"type": "string", "description": "One event a record; its data is a RecordOut."},
    example=f"id: 17\ndata: {msgspec.json.encode(RECORD).decode()}\n\n",
)
EVENT: Final = {
    "specversion": "1.0",
    "id": "1b7f",
    "source": "/checkout/eu",
    "type": "com.example.order.placed",
    "subject": "customer-7",
    "datacontenttype": "application/json",
    "data": {"total": 21},
}
_EVENT_SCHEMA: Final[Json] = {
    "type": "object",
    "description": "A CloudEvent in the JSON format.",
    "properties": {"data": {}, "data_base64": {"type": "string"}},
    "required": list(REQUIRED),
    "additionalProperties": True,
}
_EVENT: Final = Content(schema=_EVENT_SCHEMA, example=EVENT)
EVENTS: Final = Content(schema={"type": "array", "items": _EVENT_SCHEMA}, example=[EVENT])
# openapi-python-client chooses the media type by the type of the body: there can be one of bytes.
# The code it makes of a list in such a choice fails; it leaves out what is referred to like this.
_ITEM: Final = (
    "#/paths/~1v1~1topics~1%7Btopic%7D~1records/post/requestBody/content/"
    "application~1cloudevents+json/schema"
)
_NEW_EVENTS: Final = Content(schema={"type": "array", "items": {"$ref": _ITEM}}, example=[EVENT])
_ONE_RECORD: Final = Content(schema=BYTES, example="hello")
_CURLS: Final = Content(
    schema={"type": "string", "description": "One record, as `curl -d` sends it."}, example="hello"
)

TOPIC_ID: Final = {
    "Seb-Topic-Id": "Id of the topic, for `topic_id`: one that is made again has another."
}
POSITIONS: Final = {
    "Seb-Next-Offset": "Where the next read goes on.",
    "Seb-Log-End-Offset": "The offset that the next record of the topic gets.",
    **TOPIC_ID,
}
READ_ERRORS: Final[ErrorTypes] = (
    BadNameError,
    TopicNotFoundError,
    NotAcceptableError,
    OffsetExpiredError,
    CorruptObjectError,
    StoreUnavailableError,
    FencedError,
)
WRITE_ERRORS: Final[ErrorTypes] = (
    StreamClosedError,
    BadNameError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
    BadJsonError,
    StandbyError,
    FencedError,
    ShuttingDownError,
    StoreUnavailableError,
    OutcomeUnknownError,
)

OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/v1/topics/{topic}/records",
        operation_id="produce",
        tag="Records",
        summary="Append records",
        description="All records of a request get consecutive offsets, or none is stored. 201 "
        "means that the bucket has them. 504 `outcome_unknown` means that they may be stored yet: "
        "with an Idempotency-Key, or as an idempotent producer, send the same again until it is "
        "answered. CloudEvents 1.0 are stored with their data as the value and their attributes as "
        "headers `ce_…`; in binary mode any Content-Type goes. The same `source` and `id` with the "
        "same content are stored once, as under an Idempotency-Key.",
        parameters=[parameters.TOPIC, *parameters.PRODUCE],
        body={
            "application/octet-stream": _ONE_RECORD,
            "text/plain": _ONE_RECORD,
            "application/x-www-form-urlencoded": _CURLS,
            "application/json": Content(schema=ref(Envelope), example={"records": [NEW_RECORD]}),
            "application/x-ndjson": _NDJSON,
            "application/ndjson": _NDJSON,
            "application/jsonl": _NDJSON,
            "application/vnd.seb.batch": Content(schema=BYTES),
            "application/cloudevents+json": _EVENT,
            "application/cloudevents-batch+json": _NEW_EVENTS,
        },
        body_required=False,
        replies={
            201: Reply(
                description="Stored",
                content={"application/json": Content(schema=ref(Produced), example=_PRODUCED)},
                headers={
                    **DURABILITY,
                    **REPLAYED,
                    "Server-Timing": "Milliseconds in the window, and of the bucket's PUT.",
                },
            ),
            200: Reply(
                description="A producer's seq that was stored before, with its offsets; they are "
                "null when five later ones have been stored since",
                content={"application/json": Content(schema=ref(Produced), example=_PRODUCED)},
                headers=DURABILITY,
            ),
        },
        errors=(
            *WRITE_ERRORS,
            BadBatchError,
            BadCloudEventError,
            RecordTooLargeError,
            TopicNotFoundError,
            StaleEpochError,
            SequenceGapError,
            PreconditionFailedError,
            IdempotencyMismatchError,
        ),
    ),
    Operation(
        method="GET",
        path="/v1/topics/{topic}/records",
        operation_id="consume",
        tag="Records",
        summary="Read records from an offset on",
        description="With `wait`, a reader at the log end gets its answer when a record comes. "
        "A batch answer is the stored bytes: its first and last batch may hold records outside "
        "the range. As `text/event-stream` the records come from `offset` on, and then each one as "
        "it is stored: `id` is its offset, `data` the record as in JSON; a comment comes at "
        "least every 15 s. The stream ends behind `max_records` or before `until` (an offset), if "
        "they are given, and with an `error` event that holds a problem document when it cannot "
        "go on; `wait` and `max_bytes` are refused. `Seb-Next-Offset` is where it begins; "
        "there is no `Seb-Log-End-Offset`. As NDJSON, CSV or an Arrow stream (which needs pyarrow "
        "beside the appliance) all records up to the log end of now come, unless there is `until`, "
        "`max_records` or, but for Arrow, `max_bytes`; an answer that cannot be finished is cut "
        "within its chunked body. As CloudEvents, records that came as others get id, source and "
        "type from offset and topic.",
        parameters=[parameters.TOPIC, *parameters.CONSUME_OR_FOLLOW],
        replies={
            200: Reply(
                description="Records, perhaps none",
                content={
                    "application/json": Content(
                        schema={"anyOf": [ref(RecordsOut), ref(ViewOut)]},
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
    ),
    Operation(
        method="GET",
        path="/v1/topics/{topic}/records/{offset}",
        operation_id="getRecord",
        tag="Records",
        summary="Read one record",
        description="As JSON, or its raw value with `Accept: application/octet-stream`, or "
        "as a CloudEvent.",
        parameters=[parameters.TOPIC, parameters.RECORD_OFFSET, parameters.VALUES],
        replies={
            200: Reply(
                description="The record",
                content={
                    "application/json": Content(schema=ref(RecordOut), example=RECORD),
                    "application/octet-stream": Content(schema=BYTES),
                    "application/cloudevents+json": _EVENT,
                },
                headers={
                    **TOPIC_ID,
                    "Seb-Offset": "Raw: its offset.",
                    "Seb-Timestamp": "Raw: its timestamp.",
                    "Seb-Key": "Raw: its record key, percent-encoded.",
                    "Seb-Tombstone": "Raw: `true` for a null value.",
                    "ETag": "Raw: for If-None-Match.",
                },
            ),
            304: Reply(description="Raw: the client has it already (If-None-Match)"),
        },
        errors=(*READ_ERRORS, RecordNotFoundError),
    ),
]
SCHEMAS: Final = [Envelope, Record, Produced, RecordsOut, ViewOut, RecordOut]

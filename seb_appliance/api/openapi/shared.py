"""Schemas, examples and lists of errors that several routes document."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.encoding.record_encoding import HEADER_ROW
from seb_appliance.api.openapi.parameters import Json
from seb_appliance.api.routes.route import Content, ErrorTypes
from seb_appliance.errors import (
    BadJsonError,
    BadNameError,
    CorruptObjectError,
    FencedError,
    IdempotencyMismatchError,
    NotAcceptableError,
    OffsetExpiredError,
    OutcomeUnknownError,
    PreconditionFailedError,
    RecordTooLargeError,
    RequestTooLargeError,
    SequenceGapError,
    ShuttingDownError,
    StaleEpochError,
    StandbyError,
    StoreUnavailableError,
    StreamClosedError,
    TopicNotFoundError,
    UnsupportedMediaTypeError,
)

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
DURABILITY_HEADER: Final = {
    "Seb-Durability": "Where the records are stored: `s3`, `disk` or `memory`."
}
REPLAYED_HEADER: Final = {
    "Idempotency-Replayed": "`true`: the request was executed before; this is its first answer."
}
CSV_ROWS: Final = Content(
    schema={"type": "string", "description": "RFC 4180; a column for each field of RecordOut."},
    example=f'{HEADER_ROW.decode()}17,{TIME},"customer-7","{{""total"": 21}}",{{}},,,\r\n',
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
    "required": ["specversion", "id", "source", "type"],
    "additionalProperties": True,
}
EVENT_CONTENT: Final = Content(schema=_EVENT_SCHEMA, example=EVENT)
EVENTS: Final = Content(schema={"type": "array", "items": _EVENT_SCHEMA}, example=[EVENT])
TOPIC_ID: Final = {
    "Seb-Topic-Id": "Id of the topic, for the parameter `topic_id`. A topic that is deleted and "
    "created again gets a new id."
}
POSITIONS: Final = {
    "Seb-Next-Offset": "The offset where the next read continues.",
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
# Of routes that append under the conditions of SAFE_APPEND.
SAFE_APPEND_ERRORS: Final[ErrorTypes] = (
    *WRITE_ERRORS,
    RecordTooLargeError,
    TopicNotFoundError,
    StaleEpochError,
    SequenceGapError,
    PreconditionFailedError,
    IdempotencyMismatchError,
)
REMOVAL_ERRORS: Final[ErrorTypes] = (
    StandbyError,
    FencedError,
    ShuttingDownError,
    StoreUnavailableError,
    OutcomeUnknownError,
)

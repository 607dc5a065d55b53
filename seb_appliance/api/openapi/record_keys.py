"""The operations on record keys, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Final

from seb_appliance import limits
from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, ErrorTypes, Json, Operation, Reply, ref
from seb_appliance.api.openapi.parameters import query
from seb_appliance.api.openapi.records import (
    BYTES,
    DURABILITY,
    RECORD,
    REPLAYED,
    TIME,
    WRITE_ERRORS,
)
from seb_appliance.api.routes.records.key_parameters import (
    HistoryQuestion,
    KeysQuestion,
    LatestQuestion,
)
from seb_appliance.api.routes.records.produce import Produced
from seb_appliance.api.routes.records.record_keys import HistoryOut, KeyOut, KeysOut, LatestOut
from seb_appliance.errors import (
    BadJsonError,
    BadNameError,
    CorruptObjectError,
    IdempotencyMismatchError,
    KeyIndexOffError,
    NotAcceptableError,
    PreconditionFailedError,
    RecordKeyNotFoundError,
    RecordTooLargeError,
    RequestTooLargeError,
    SequenceGapError,
    StaleEpochError,
    StoreUnavailableError,
    TopicNotFoundError,
    UnsupportedMediaTypeError,
)

_JSON: Final = "application/json"
_ERRORS: Final[ErrorTypes] = (
    BadNameError,
    TopicNotFoundError,
    KeyIndexOffError,
    RecordTooLargeError,
    CorruptObjectError,
    StoreUnavailableError,
)
_BODY_ERRORS: Final[ErrorTypes] = (
    *_ERRORS,
    BadJsonError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)
_FRESH: Final = query(
    "fresh",
    f"Wait until the index has reached the log end, {limits.KEY_INDEX_FRESH_S} s at most.",
    type="string",
    enum=["true", "false"],
    default="false",
)
_LIMIT: Final = query(
    "limit",
    "At most so many.",
    type="integer",
    minimum=1,
    maximum=limits.KEYS_PER_PAGE_MAX,
    default=limits.KEYS_PER_PAGE_DEFAULT,
)
_KEYS: Final[list[Json]] = [
    query("prefix", "Only record keys that begin so.", "customer-"),
    query("prefix_base64", "As prefix, for any bytes."),
    query("after", "Only record keys behind this one: `next_after` of the page before."),
    query("after_base64", "As after, for any bytes."),
    _LIMIT,
    _FRESH,
]
_LATEST: Final[list[Json]] = [*parameters.RECORD_KEY, parameters.VALUES, _FRESH]
_HISTORY: Final[list[Json]] = [
    *_LATEST,
    query(
        "before",
        "Only records below this offset: `next_before` of the page before.",
        type="integer",
        minimum=0,
        maximum=limits.OFFSET_MAX,
    ),
    _LIMIT,
]
_LONG: Final = "The same question as GET, for record keys that are too long for a URL."
_TRUE_UP_TO: Final = "The answer is true up to `indexed_offset` (exclusive)."
_INDEXED: Final = {"Seb-Indexed-Offset": "Up to which offset (exclusive) the answer is true."}

_KEYS_REPLY: Final = {
    200: Reply(
        description="Record keys, perhaps none",
        content={
            _JSON: Content(
                schema=ref(KeysOut),
                example={
                    "topic": "orders.eu",
                    "topic_id": 3,
                    "keys": [{"key": "customer-7", "offset": 17, "timestamp": TIME}],
                    "next_after": None,
                    "next_after_base64": None,
                    "indexed_offset": 18,
                },
            )
        },
        headers=_INDEXED,
    )
}
_LATEST_REPLY: Final = {
    200: Reply(
        description="The newest record of the record key",
        content={
            _JSON: Content(
                schema=ref(LatestOut),
                example={
                    "topic": "orders.eu",
                    "topic_id": 3,
                    "record": RECORD,
                    "indexed_offset": 18,
                },
            ),
            "application/octet-stream": Content(schema=BYTES),
        },
        headers=_INDEXED,
    ),
    304: Reply(description="Raw: the client has it already (If-None-Match)"),
}
_HISTORY_REPLY: Final = {
    200: Reply(
        description="Records of the record key, newest first",
        content={
            _JSON: Content(
                schema=ref(HistoryOut),
                example={
                    "topic": "orders.eu",
                    "topic_id": 3,
                    "records": [RECORD],
                    "next_before": None,
                    "indexed_offset": 18,
                },
            )
        },
        headers=_INDEXED,
    )
}

OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v1/topics/{topic}/keys",
        operation_id="listRecordKeys",
        tag="Record keys",
        summary="List record keys",
        description="As bytes in their order; those whose newest record is a tombstone are left "
        f"out. {_TRUE_UP_TO}",
        parameters=[parameters.TOPIC, *_KEYS],
        replies=_KEYS_REPLY,
        errors=_ERRORS,
    ),
    Operation(
        method="POST",
        path="/v1/topics/{topic}/keys",
        operation_id="findRecordKeys",
        tag="Record keys",
        summary="List record keys, asked in a body",
        description=_LONG,
        parameters=[parameters.TOPIC],
        body={_JSON: Content(schema=ref(KeysQuestion), example={"prefix": "customer-"})},
        body_required=False,
        replies=_KEYS_REPLY,
        errors=_BODY_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/topics/{topic}/keys/latest",
        operation_id="getLatestOfRecordKey",
        tag="Record keys",
        summary="Read the newest record of a record key",
        description="404 when there is none, or when it is a tombstone. As JSON, or its raw value "
        f"with `Accept: application/octet-stream`. {_TRUE_UP_TO}",
        parameters=[parameters.TOPIC, *_LATEST],
        replies=_LATEST_REPLY,
        errors=(*_ERRORS, RecordKeyNotFoundError, NotAcceptableError),
    ),
    Operation(
        method="POST",
        path="/v1/topics/{topic}/keys/latest",
        operation_id="findLatestOfRecordKey",
        tag="Record keys",
        summary="Read the newest record of a record key, asked in a body",
        description=_LONG,
        parameters=[parameters.TOPIC],
        body={_JSON: Content(schema=ref(LatestQuestion), example={"key": "customer-7"})},
        replies=_LATEST_REPLY,
        errors=(*_BODY_ERRORS, RecordKeyNotFoundError, NotAcceptableError),
    ),
    Operation(
        method="GET",
        path="/v1/topics/{topic}/keys/history",
        operation_id="getHistoryOfRecordKey",
        tag="Record keys",
        summary="Read the records of a record key, newest first",
        description="Every one that is still stored, tombstones too. The topic needs `key_index` "
        f"`history`. {_TRUE_UP_TO}",
        parameters=[parameters.TOPIC, *_HISTORY],
        replies=_HISTORY_REPLY,
        errors=_ERRORS,
    ),
    Operation(
        method="POST",
        path="/v1/topics/{topic}/keys/history",
        operation_id="findHistoryOfRecordKey",
        tag="Record keys",
        summary="Read the records of a record key, asked in a body",
        description=_LONG,
        parameters=[parameters.TOPIC],
        body={_JSON: Content(schema=ref(HistoryQuestion), example={"key": "customer-7"})},
        replies=_HISTORY_REPLY,
        errors=_BODY_ERRORS,
    ),
    Operation(
        method="DELETE",
        path="/v1/topics/{topic}/keys",
        operation_id="deleteRecordKey",
        tag="Record keys",
        summary="Append a tombstone for a record key",
        description="A record with this record key and a null value, stored and acknowledged as "
        "any other. The grant is `produce`.",
        parameters=[
            parameters.TOPIC,
            *parameters.RECORD_KEY,
            *parameters.SAFE_APPEND,
            parameters.TIMEOUT,
        ],
        replies={
            200: Reply(
                description="Stored",
                content={
                    _JSON: Content(
                        schema=ref(Produced),
                        example={
                            "topic": "orders.eu",
                            "topic_id": 3,
                            "offset": 18,
                            "count": 1,
                            "last_offset": 18,
                            "timestamp": TIME,
                        },
                    )
                },
                headers={**DURABILITY, **REPLAYED},
            )
        },
        errors=(
            *WRITE_ERRORS,
            RecordTooLargeError,
            TopicNotFoundError,
            StaleEpochError,
            SequenceGapError,
            PreconditionFailedError,
            IdempotencyMismatchError,
        ),
    ),
]
SCHEMAS: Final = [
    KeyOut,
    KeysOut,
    LatestOut,
    HistoryOut,
    KeysQuestion,
    LatestQuestion,
    HistoryQuestion,
]

"""The Go broker's API, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Any, Final

from seb_appliance.api.openapi.document import Content, ErrorTypes, Json, Operation, Reply, ref
from seb_appliance.api.openapi.parameters import header, query
from seb_appliance.api.openapi.records import BYTES, DURABILITY, READ_ERRORS, TIME, WRITE_ERRORS
from seb_appliance.errors import (
    OverloadedError,
    RecordNotFoundError,
    RecordTooLargeError,
    ShuttingDownError,
    TopicNotFoundError,
)
from seb_appliance.protocols.go.routes import GoOffsets, GoTopic

_TAG: Final = "The Go broker's API"
_TEXT_ERRORS: Final = "Errors are told as plain text. "


def _required(name: str, description: str, example: Any, **schema: Any) -> Json:
    return {**query(name, description, example, **schema), "required": True}


_TOPIC: Final = _required("topic-name", "Name of the topic.", "orders.eu", type="string")
_OFFSET: Final = _required("offset", "An offset.", 17, type="integer", minimum=0)
_MULTIPART: Final = {
    "multipart/form-data": Content(
        schema={
            "type": "object",
            "description": "Exactly these parts, in this order.",
            "properties": {
                "sizes": {
                    "type": "string",
                    "description": "A JSON list: how many bytes each record has (uint32).",
                },
                "records": {**BYTES, "description": "The records, back to back."},
            },
            "required": ["sizes", "records"],
        },
        example={"sizes": "[5,5]", "records": "helloworld"},
    )
}
_FIRST_USE: Final[ErrorTypes] = (*READ_ERRORS, OverloadedError, ShuttingDownError)

OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/records",
        operation_id="goAddRecords",
        tag=_TAG,
        summary="Append records, as the Go broker takes them",
        description=_TEXT_ERRORS + "All records of a request get consecutive offsets, or none is "
        "stored. A topic is made on first use, where the API key may `manage` it.",
        parameters=[_TOPIC],
        body=_MULTIPART,
        replies={
            201: Reply(
                description="Stored",
                content={
                    "application/json": Content(
                        schema=ref(GoOffsets), example={"offsets": [17, 18]}
                    )
                },
                headers=DURABILITY,
            )
        },
        errors=(*WRITE_ERRORS, RecordTooLargeError, TopicNotFoundError),
        text_errors=True,
    ),
    Operation(
        method="GET",
        path="/records",
        operation_id="goGetRecords",
        tag=_TAG,
        summary="Read records from an offset on, as the Go broker gives them",
        description=_TEXT_ERRORS + "Answers as soon as the offset is there. The next offset is "
        "`offset` and as many as came: one whose record compaction took comes as an empty record.",
        parameters=[
            _TOPIC,
            _OFFSET,
            query("max-records", "At most so many; 0 means 10.", 10, type="integer", minimum=0),
            query("max-bytes", "Soft; 0: no limit.", 0, type="integer", minimum=0),
            query("timeout", "A Go duration: wait so long for the offset, 1m at most.", "10s"),
            header("Accept", "`multipart/form-data` or `*/*`, and never nothing."),
        ],
        replies={
            200: Reply(description="Records", content=_MULTIPART),
            206: Reply(description="The offset did not come in time", content=_MULTIPART),
        },
        errors=_FIRST_USE,
        text_errors=True,
    ),
    Operation(
        method="GET",
        path="/record",
        operation_id="goGetRecord",
        tag=_TAG,
        summary="Read one record, as the Go broker gives it",
        description=_TEXT_ERRORS + "The value alone.",
        parameters=[_TOPIC, _OFFSET],
        replies={
            200: Reply(
                description="The record",
                content={"application/octet-stream": Content(schema=BYTES)},
            )
        },
        errors=(*READ_ERRORS, RecordNotFoundError),
        text_errors=True,
    ),
    Operation(
        method="GET",
        path="/topic",
        operation_id="goGetTopic",
        tag=_TAG,
        summary="Where a topic ends, as the Go broker tells it",
        description=_TEXT_ERRORS + "`latest_commit_at` is when the newest record was stored; of an "
        "empty topic, when it was made.",
        parameters=[_TOPIC],
        replies={
            200: Reply(
                description="The topic",
                content={
                    "application/json": Content(
                        schema=ref(GoTopic), example={"next_offset": 3, "latest_commit_at": TIME}
                    )
                },
            )
        },
        errors=_FIRST_USE,
        text_errors=True,
    ),
]
SCHEMAS: Final = [GoOffsets, GoTopic]

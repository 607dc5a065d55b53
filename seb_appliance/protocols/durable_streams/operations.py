"""The Durable Streams protocol, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Any, Final

from seb_appliance.api.openapi.document import Content, ErrorTypes, Json, Operation, Reply
from seb_appliance.api.openapi.parameters import header, query
from seb_appliance.api.openapi.records import BYTES, READ_ERRORS, WRITE_ERRORS
from seb_appliance.errors import (
    BadJsonError,
    BadNameError,
    IdempotencyMismatchError,
    RecordTooLargeError,
    RequestTooLargeError,
    SequenceGapError,
    StaleEpochError,
    StreamClosedError,
    StreamConflictError,
    TopicNotFoundError,
)

_TAG: Final = "Durable Streams"
_PATH: Final[Json] = {
    "name": "path",
    "in": "path",
    "required": True,
    "description": "The stream; it may have slashes. `chat/room-1` is the topic `chat.room-1`.",
    "schema": {"type": "string"},
    "example": "chat",
}
_ANY_BODY: Final = {"*/*": Content(schema=BYTES)}
_WHAT_THERE_IS: Final = {
    "application/json": Content(schema={"type": "array", "items": {}}, example=[{"said": "hello"}]),
    "text/event-stream": Content(schema={"type": "string"}),
    **_ANY_BODY,
}
_NEXT: Final = {"Stream-Next-Offset": "Where the next read goes on."}
_CLOSED: Final = {"Stream-Closed": "`true`: nothing comes behind this."}
_OF_STREAM: Final = {**_NEXT, **_CLOSED, "ETag": "Of what there is."}
_WRITE: Final[ErrorTypes] = (
    *WRITE_ERRORS,
    BadNameError,
    BadJsonError,
    RecordTooLargeError,
    RequestTooLargeError,
    TopicNotFoundError,
)
_SAYS: Final = "docs/DURABLE-STREAMS.md says how streams and topics go together."


def _operation(method: str, **told: Any) -> Operation:
    return Operation(method=method, path="/v1/stream/{path}", tag=_TAG, **told)


OPERATIONS: Final = [
    _operation(
        "PUT",
        operation_id="createStream",
        summary="Make a stream",
        description="Once more with the same headers changes nothing. A topic that nobody made a "
        "stream becomes one. " + _SAYS,
        parameters=[
            _PATH,
            header("Content-Type", "Of the stream; `application/json` keeps values apart."),
            header("Stream-TTL", "It goes after so many seconds without a read or append.", "3600"),
            header("Stream-Expires-At", "It goes then.", "2026-12-24T18:00:00Z"),
            header("Stream-Closed", "`true`: the body is all there ever will be.", "true"),
            header("Stream-Forked-From", "Path of a stream whose past it shares.", "/v1/stream/a"),
            header("Stream-Fork-Offset", "Up to there; without it, up to its end."),
            header("Stream-Fork-Sub-Offset", "And so much of what follows there.", "2"),
        ],
        body=_ANY_BODY,
        body_required=False,
        replies={
            201: Reply(description="Made", headers={**_OF_STREAM, "Location": "Its URL."}),
            200: Reply(description="It is there already", headers=_OF_STREAM),
        },
        errors=(*_WRITE, StreamConflictError),
    ),
    _operation(
        "POST",
        operation_id="appendToStream",
        summary="Append to a stream, or close it",
        description="The items of a JSON list are records of their own. With `Stream-Closed` the "
        "stream ends with this append, or without one; closing needs the grant `manage`. A plain "
        "topic is not closed: `PUT` makes it a stream first. " + _SAYS,
        parameters=[
            _PATH,
            header("Content-Type", "The stream's."),
            header("Stream-Seq", "Must be above the last one, byte by byte.", "00017"),
            header("Stream-Closed", "`true`: the stream is closed.", "true"),
            header("Producer-Id", "Of an idempotent producer, with the next two.", "sensor-1"),
            header("Producer-Epoch", "From 0 on.", "0"),
            header("Producer-Seq", "From 0 on in each epoch.", "17"),
            header("Producer-Checksum", "A repeat of the seq with another is refused.", "277483"),
        ],
        body=_ANY_BODY,
        body_required=False,
        replies={
            204: Reply(description="Stored, now or before", headers={**_NEXT, **_CLOSED}),
            200: Reply(description="Stored, of an idempotent producer", headers=_NEXT),
        },
        errors=(
            *_WRITE,
            StreamClosedError,
            StreamConflictError,
            IdempotencyMismatchError,
            StaleEpochError,
            SequenceGapError,
        ),
    ),
    _operation(
        "GET",
        operation_id="readStream",
        summary="Read a stream",
        description=_SAYS,
        parameters=[
            _PATH,
            query("offset", "From a `Stream-Next-Offset`; -1: the beginning; now: the end.", "-1"),
            query("live", "`long-poll` waits for more, `sse` stays.", "sse"),
            query("cursor", "The last `Stream-Cursor`, for caches in between.", "1000"),
            header("If-None-Match", "The ETag of what the reader has."),
        ],
        replies={
            200: Reply(
                description="What there is; of a JSON stream an array",
                content=_WHAT_THERE_IS,
                headers={**_OF_STREAM, "Stream-Up-To-Date": "`true`: it reaches the end."},
            ),
            204: Reply(description="Nothing came in time", headers={**_NEXT, **_CLOSED}),
            304: Reply(description="As the reader has it"),
        },
        errors=(*READ_ERRORS, BadNameError),
    ),
    _operation(
        "DELETE",
        operation_id="deleteStream",
        summary="Delete a stream and its topic",
        parameters=[_PATH],
        replies={204: Reply(description="Gone")},
        errors=_WRITE,
    ),
]
SCHEMAS: Final[list[type]] = []

"""Answers of Durable Streams: their headers, errors, and how both are documented."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, Response

from seb_appliance.api.encoding.answers import POLICY, Headers, format_time
from seb_appliance.api.encoding.problems import answer_exception, error_of
from seb_appliance.api.openapi.parameters import Json
from seb_appliance.api.openapi.shared import BYTES, WRITE_ERRORS
from seb_appliance.api.routes.route import (
    Content,
    ErrorTypes,
)
from seb_appliance.broker.streams.admission import StreamView
from seb_appliance.errors import (
    BadJsonError,
    BadNameError,
    RecordTooLargeError,
    RequestTooLargeError,
    SebError,
    SequenceGapError,
    StaleEpochError,
    StreamClosedError,
    TopicNotFoundError,
)
from seb_appliance.protocols.durable_streams.headers import etag, offset_token, path_of

NEXT_OFFSET: Final = b"stream-next-offset"
UP_TO_DATE: Final = (b"stream-up-to-date", b"true")
CLOSED: Final = (b"stream-closed", b"true")
CURSOR: Final = b"stream-cursor"
# A page of another origin may use what it was let in for, whatever the page's own policy is.
CROSS_ORIGIN: Final = (b"cross-origin-resource-policy", b"cross-origin")
NO_STORE: Final = (b"cache-control", b"no-store")


# A program may say that what it stored is a page. Whoever opens it gets one without an origin: with
# the appliance's own it could ask the admin page, in the name of who looks at it.
_NO_ORIGIN: Final = (b"content-security-policy", POLICY + b"; sandbox")


def of_content(content_type: str) -> Headers:
    """What goes with bytes of a stream: what they are, as the client that made it said."""
    return [(b"content-type", content_type.encode()), _NO_ORIGIN]


def next_offset(offset: int) -> tuple[bytes, bytes]:
    return NEXT_OFFSET, offset_token(offset)


def described(view: StreamView) -> Headers:
    """What HEAD tells of a stream."""
    state = view.state
    tag = etag(view.topic_id, view.log_start_offset, view.log_end_offset, closed=state.closed)
    headers: Headers = [
        CROSS_ORIGIN,
        NO_STORE,
        *of_content(state.content_type),
        next_offset(view.log_end_offset),
        (b"etag", tag),
    ]
    if state.closed:
        headers.append(CLOSED)
    if state.ttl_s is not None:
        headers.append((b"stream-ttl", str(state.ttl_s).encode()))
    if state.expires_us is not None:
        headers.append((b"stream-expires-at", format_time(state.expires_us).encode()))
    return headers


def answer_error(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
    """The exception handler of these routes: a problem document, and the protocol's headers."""
    error = _of_streams(error_of(request, exception))
    response = answer_exception(request, error)
    told: Headers = [CROSS_ORIGIN]
    if isinstance(error, StaleEpochError):
        told.append((b"producer-epoch", str(error.data["current_epoch"]).encode()))
    elif isinstance(error, SequenceGapError):
        told.append((b"producer-expected-seq", str(error.data["expected"]).encode()))
        told.append((b"producer-received-seq", str(error.data["received"]).encode()))
    elif isinstance(error, StreamClosedError):
        end = error.data["log_end_offset"]
        assert isinstance(end, int), end
        told += [CLOSED, next_offset(end)]
    for name, value in told:
        response.headers[name.decode()] = value.decode()
    return response


def _of_streams(error: SebError) -> SebError:
    """What makes a topic by its own route makes no stream."""
    if type(error) is not TopicNotFoundError or error.data.keys() != {"topic"}:
        return error
    topic = str(error.data["topic"])
    path = path_of(topic)
    how = f" Create it with PUT {path}." if path is not None else ""
    return TopicNotFoundError(f"There is no stream {topic!r}.{how}", topic=topic)


TAG: Final = "Durable Streams"
PATH: Final[Json] = {
    "name": "path",
    "in": "path",
    "required": True,
    "description": "The stream; it may have slashes. `chat/room-1` is the topic `chat.room-1`.",
    "schema": {"type": "string"},
    "example": "chat",
}
ANY_BODY: Final = {"*/*": Content(schema=BYTES)}
WHAT_THERE_IS: Final = {
    "application/json": Content(schema={"type": "array", "items": {}}, example=[{"said": "hello"}]),
    "text/event-stream": Content(schema={"type": "string"}),
    **ANY_BODY,
}
NEXT_HEADER: Final = {"Stream-Next-Offset": "Where the next read goes on."}
CLOSED_HEADER: Final = {"Stream-Closed": "`true`: nothing comes behind this."}
OF_STREAM: Final = {**NEXT_HEADER, **CLOSED_HEADER, "ETag": "Of what there is."}
WRITE: Final[ErrorTypes] = (
    *WRITE_ERRORS,
    BadNameError,
    BadJsonError,
    RecordTooLargeError,
    RequestTooLargeError,
    TopicNotFoundError,
)
SAYS: Final = "docs/DURABLE-STREAMS.md says how streams and topics go together."

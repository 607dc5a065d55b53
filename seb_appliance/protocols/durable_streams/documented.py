"""Parameters, headers and errors that the routes of streams document."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.openapi.parameters import Json
from seb_appliance.api.openapi.shared import BYTES, WRITE_ERRORS
from seb_appliance.api.routes.route import (
    Content,
    ErrorTypes,
)
from seb_appliance.errors import (
    BadJsonError,
    BadNameError,
    RecordTooLargeError,
    RequestTooLargeError,
    TopicNotFoundError,
)

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

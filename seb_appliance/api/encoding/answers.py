"""An HTTP answer: status, headers and bytes, sent as they are; and times on the wire.

Times are RFC 3339 in UTC with microseconds on the wire, and µs since the epoch inside.
"""

from __future__ import annotations

import http
import itertools
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec
from litestar.types import HTTPResponseBodyEvent, Message, Receive, Scope, Send

from seb_appliance import __version__, limits
from seb_appliance.broker.shares import Reservation
from seb_appliance.errors import BadParameterError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.columns import Bytes

Headers = list[tuple[bytes, bytes]]
JSON: Final = b"application/json"
NDJSON: Final = b"application/x-ndjson"
CSV: Final = b"text/csv"
BATCH: Final = b"application/vnd.seb.batch"
RAW: Final = b"application/octet-stream"
SSE: Final = b"text/event-stream"
ARROW: Final = b"application/vnd.apache.arrow.stream"
EVENT: Final = b"application/cloudevents+json"
EVENTS: Final = b"application/cloudevents-batch+json"

# The formats of a read, by their name in the query.
FORMATS: Final = {
    "json": JSON.decode(),
    "ndjson": NDJSON.decode(),
    "csv": CSV.decode(),
    "batch": BATCH.decode(),
    "cloudevents": EVENTS.decode(),
}
LIVE: Final = SSE.decode()
COLUMNS: Final = ARROW.decode()
ALL_FORMATS: Final = {**FORMATS, "sse": LIVE, "arrow": COLUMNS}

# No answer is a page: a browser that is led to one runs nothing of it, and sends no form of it.
POLICY: Final = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# What an answer gets unless its handler says otherwise.
DEFAULT_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)

VERSION_HEADER: Final = (b"seb-version", __version__.encode())
REQUEST_ID_HEADER: Final = b"seb-request-id"
_PROCESS: Final = os.urandom(4).hex()
_requests: Final = itertools.count()

# A part is written at once; before the next one the client has to have taken it.
_PART_BYTES: Final = 256 * 1024


def new_request_id() -> str:
    """16 hexadecimal digits: half of them the process's, half a count."""
    return f"{_PROCESS}{next(_requests) & 0xFFFFFFFF:08x}"


def status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode()


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


def with_defaults(headers: Headers, request_id: bytes) -> Headers:
    """Adds the headers of every answer where they are not given."""
    given = {name for name, _ in headers}
    defaults = [default for default in DEFAULT_HEADERS if default[0] not in given]
    return [*headers, *defaults, (REQUEST_ID_HEADER, request_id), VERSION_HEADER]


async def send_part(send: Send, content: Bytes) -> None:
    """Returns when the client has taken `content`, but for what the kernel holds of it."""
    await _send_part(send, content)
    await send(body_event(b""))


async def _send_part(send: Send, content: Bytes) -> None:
    for at in range(0, len(content), _PART_BYTES):
        await send(body_event(bytes(content[at : at + _PART_BYTES])))


def content_length(status: int, length: int) -> Headers:
    """A status that has no body has no length either (RFC 9110, section 8.6)."""
    return [] if status in (204, 304) else [(b"content-length", str(length).encode())]


def body_event(content: bytes, *, more: bool = True) -> Message:
    event: HTTPResponseBodyEvent = {
        "type": "http.response.body",
        "body": content,
        "more_body": more,
    }
    return cast("Message", event)


_encoder: Final = msgspec.json.Encoder()


class Answer:
    """An ASGI application that sends one answer. `reservation` is released once it is sent, or
    the client is gone; `failpoint` K11 kills the process when half of the body was sent."""

    __slots__ = ("body", "failpoints", "headers", "reservation", "status")

    def __init__(
        self,
        status: int,
        headers: Headers,
        body: Bytes | Sequence[Bytes] = b"",
        *,
        reservation: Reservation | None = None,
        failpoints: Failpoints | None = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = [body] if isinstance(body, bytes | memoryview) else body
        self.reservation = reservation
        self.failpoints = failpoints

    async def __call__(
        self,
        scope: Scope,  # noqa: ARG002 - the shape of an ASGI application
        receive: Receive,  # noqa: ARG002
        send: Send,
    ) -> None:
        try:
            await self._send(send)
        finally:
            if self.reservation is not None:
                self.reservation.release()

    async def _send(self, send: Send) -> None:
        length = sum(map(len, self.body))
        headers = [*self.headers, *content_length(self.status, length)]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if self.failpoints is not None:
            if self.failpoints.armed("K11"):
                half = bytes(self.body[0])[: length // 2]
                await send({"type": "http.response.body", "body": half, "more_body": True})
            self.failpoints.reach("K11")
        if length <= _PART_BYTES:
            body = b"".join(self.body) if len(self.body) != 1 else bytes(self.body[0])
            is_small = length <= limits.HTTP_UNSENT_BYTES
            await send(body_event(body, more=not is_small))
            if is_small:
                return
        else:
            for piece in self.body:
                await _send_part(send, piece)
        await send(body_event(b"", more=False))  # the client has taken all that came before


def json_line(content: Any) -> bytes:
    """`content` (anything msgspec can encode) as JSON, with the end of a line: what a shell shows
    next stands on a line of its own."""
    return _encoder.encode(content) + b"\n"


def json_answer(status: int, content: Any, headers: Headers | None = None) -> Answer:
    """`content` (anything msgspec can encode) as JSON."""
    return Answer(status, [(b"content-type", JSON), *(headers or [])], json_line(content))


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST_US: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST_US: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
AwareTime: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


def format_time(timestamp_us: int) -> str:
    """`2026-11-21T10:00:00.000123Z`. Beyond the year 9999, which no record reaches, it raises."""
    seconds, us = divmod(timestamp_us, 1_000_000)
    return f"{_format_second(seconds)}.{us:06d}Z"


@lru_cache(maxsize=1024)  # records that are written or read together share few seconds
def _format_second(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()[:-6]


def format_times(timestamps_us: Iterable[int]) -> list[str]:
    """`format_time` of many; the date is formatted once per second."""
    texts: list[str] = []
    prefix = ""
    prefix_s: int | None = None
    for timestamp_us in timestamps_us:
        second, fraction = divmod(timestamp_us, 1_000_000)
        if second != prefix_s:
            prefix, prefix_s = format_time(second * 1_000_000)[:-7], second
        texts.append(f"{prefix}{fraction:06d}Z")
    return texts


def to_us(moment: datetime) -> int:
    """µs since the epoch of a time with a zone. Raises BadParameterError outside the years 1
    to 9999 in UTC, which could be stored but not shown."""
    since_us = (moment - EPOCH) // _MICROSECOND
    if not _FIRST_US <= since_us <= _LAST_US:
        raise BadParameterError(f"{moment.isoformat()} is outside the years 1 to 9999 in UTC.")
    return since_us


def parse_time(text: str) -> int:
    """µs since the epoch of an RFC 3339 time. Raises ValueError with an unfinished sentence."""
    try:
        return to_us(msgspec.convert(text, AwareTime))
    except (msgspec.ValidationError, OverflowError, BadParameterError) as error:
        raise ValueError(
            f"{text[:100]!r} is not a time such as 2026-11-21T10:00:00Z (in a URL, write the + "
            "of a time zone as %2B)"
        ) from error


def produced_body(topic: str, topic_id: int, offset: int, count: int, timestamp_us: int) -> bytes:
    """`Produced` as JSON. Topic names need no escapes."""
    return (
        f'{{"topic":"{topic}","topic_id":{topic_id},"offset":{offset},"count":{count},'
        f'"last_offset":{offset + count - 1},"timestamp":"{format_time(timestamp_us)}"}}\n'
    ).encode()


def produced_timing(window_s: float, put_s: float) -> bytes:
    return f"window;dur={window_s * 1000:.1f}, put;dur={put_s * 1000:.1f}".encode()

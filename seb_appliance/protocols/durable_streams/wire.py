"""Paths, request headers and callers of the Durable Streams protocol.

The parts of a path between slashes are the words of a topic between dots. In them letters, digits,
`-` and `_` stand for themselves, and every other character is `_` with two hexadecimal digits in
capitals, as is an `_` that could be taken for such an escape. So `chat/room:1` is `chat.room_3A1`.
Only visible ASCII comes into a path: of characters that look alike there is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from litestar import Request, Response
from litestar.types import Scope

from seb_appliance import limits
from seb_appliance.api.encoding.answers import POLICY, Headers, format_time, parse_time
from seb_appliance.api.encoding.conditions import producer_of
from seb_appliance.api.encoding.parameters import read_headers
from seb_appliance.api.encoding.problems import answer_exception, error_of
from seb_appliance.api.openapi.parameters import Json
from seb_appliance.api.openapi.shared import BYTES, WRITE_ERRORS
from seb_appliance.api.routes.route import (
    Content,
    ErrorTypes,
    Services,
)
from seb_appliance.api.server.auth import (
    AnyRequest,
    Call,
    is_let_in,
    is_local,
    let_in,
    peer_address,
    refuse_attached_key,
    token_of,
)
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.streams.admission import (
    StreamAppend,
    StreamView,
    WantedFork,
    WantedStream,
)
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import (
    BadJsonError,
    BadNameError,
    BadParameterError,
    RecordTooLargeError,
    RefusedError,
    RequestTooLargeError,
    SebError,
    SequenceGapError,
    StaleEpochError,
    StreamClosedError,
    TopicNotFoundError,
    UnauthenticatedError,
)
from seb_appliance.protocols.durable_streams import limits as stream_limits

PREFIX: Final = b"/v1/stream/"
RESERVED: Final = "__ds"  # the first part of paths that are no streams
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_PART: Final = re.compile(r"[A-Za-z0-9._~:@!$&'()*+,;=-]+")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]|_(?=[0-9A-F]{2})")
_ESCAPED: Final = re.compile(r"_([0-9A-F]{2})")
_SAFE: Final = "~:@!$&'()*+,;=/"


def topic_of(raw_path: bytes) -> str:
    """The topic of a stream's path, as it came. Raises BadNameError."""
    given = raw_path.removeprefix(PREFIX)
    if given == raw_path or not given or len(given) > stream_limits.PATH_CHARACTERS_MAX:
        raise BadNameError(
            f"A stream's path must be {PREFIX.decode()} and 1 to "
            f"{stream_limits.PATH_CHARACTERS_MAX} characters."
        )
    words = [_word(part) for part in given.split(b"/")]
    if words[0] == RESERVED:
        raise BadNameError(f"Paths that begin with {RESERVED} are the protocol's own.")
    return check_topic_name(".".join(words))


def _word(part: bytes) -> str:
    text = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), part).decode("latin-1")
    if not _PART.fullmatch(text) or text in {".", ".."}:
        raise BadNameError(
            "A part of a stream's path can have letters, digits and -._~:@!$&'()*+,;= and "
            "cannot be empty, . or .. ; a slash cannot be escaped."
        )
    return _FOREIGN.sub(lambda found: f"_{ord(found[0]):02X}", text)


def path_of(topic: str) -> str | None:
    """The path of the stream that the topic is; None for a topic that no path names."""
    words = (_ESCAPED.sub(lambda found: chr(int(found[1], 16)), word) for word in topic.split("."))
    path = PREFIX.decode() + quote("/".join(words), safe=_SAFE)
    try:
        return path if topic_of(path.encode()) == topic else None
    except BadNameError:
        return None


# What a reader hands back: offsets, cursors, and tags of what it has.


_TOKEN: Final = re.compile(r"([0-9]{16})_0{16}")
_CURSOR: Final = re.compile(r"[0-9]{1,15}")
_EPOCH_S: Final = 1_728_432_000  # 2024-10-09, from which the protocol counts intervals


def offset_token(offset: int) -> bytes:
    """Sorts as offsets do. The second half is zeros: a place within a record has no name."""
    return b"%016d_0000000000000000" % offset


def parse_offset(token: str) -> int:
    """Raises BadParameterError."""
    found = _TOKEN.fullmatch(token)
    if found is None or int(found[1]) > limits.OFFSET_MAX:
        raise BadParameterError(
            "This is not an offset of a stream. Send the Stream-Next-Offset of an answer, -1 "
            "for the beginning or now for the end."
        )
    return int(found[1])


def etag(topic_id: int, begin: int, end: int, stored_us: int, *, closed: bool) -> bytes:
    """The ETag of a read: of the offsets `begin` to `end` (exclusive), and whether the stream is
    closed there. A topic that is created again has another id. `stored_us`: when the last record
    was stored, 0 where none is read; after a restore as of an earlier time, other records get
    the same offsets."""
    return b'"%d-%d-%d-%x%b"' % (topic_id, begin, end, stored_us, b"-c" if closed else b"")


@dataclass(frozen=True, slots=True)
class Cursors:
    """Numbers of intervals of 20 s, by which caches gather readers who wait for the same.
    `random_up_to` draws a whole number from 1 to what it is given."""

    now_s: Callable[[], float]
    random_up_to: Callable[[int], int]

    def after(self, given: str | None) -> int:
        """The cursor of now, or one ahead of what the reader sent: it never gets that again, nor
        what a cache keeps under it."""
        now = (int(self.now_s()) - _EPOCH_S) // stream_limits.CURSOR_INTERVAL_S
        if given is None or not _CURSOR.fullmatch(given) or int(given) < now:
            return now
        jitter_s = self.random_up_to(stream_limits.CURSOR_JITTER_S_MAX)
        return int(given) + -(-jitter_s // stream_limits.CURSOR_INTERVAL_S)


Given = dict[bytes, bytes]
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,15}")
_CONTENT_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+(?:\s*;[\x20-\x7e]*)?", re.ASCII)
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


def wanted_stream(given: Given) -> WantedStream:
    """What a PUT asks for. Raises BadParameterError, BadNameError."""
    ttl, expires = given.get(b"stream-ttl"), given.get(b"stream-expires-at")
    if ttl is not None and expires is not None:
        raise BadParameterError("Send Stream-TTL or Stream-Expires-At, not both.")
    return WantedStream(
        content_type(given),
        None if ttl is None else _number(ttl, "Stream-TTL"),
        None if expires is None else _time(expires),
        is_closing(given),
        _fork(given),
    )


def wanted_append(given: Given, owner: str) -> StreamAppend:
    """What a POST of the API key `owner` asks for; its body is not read yet. Raises
    BadParameterError."""
    seq = given.get(b"stream-seq")
    text = None if seq is None else seq.decode("latin-1")
    if text is not None and (
        len(text) > stream_limits.SEQ_CHARACTERS_MAX or not _VISIBLE.fullmatch(text)
    ):
        raise BadParameterError(
            f"Stream-Seq must have 1 to {stream_limits.SEQ_CHARACTERS_MAX} visible ASCII "
            "characters."
        )
    producer = producer_of(given, owner)
    return StreamAppend([], content_type(given), producer, text, is_closing(given))


def content_type(given: Given) -> str | None:
    """None when none, or an empty one, was sent. Raises BadParameterError."""
    text = given.get(b"content-type", b"").decode("latin-1").strip()
    if not text:
        return None
    too_long = len(text) > stream_limits.CONTENT_TYPE_CHARACTERS_MAX
    if too_long or not _CONTENT_TYPE.fullmatch(text):
        raise BadParameterError(f"{text[:100]!r} is not a content type.")
    return text


def is_closing(given: Given) -> bool:
    return given.get(b"stream-closed", b"").lower() == b"true"


def _fork(given: Given) -> WantedFork | None:
    parent, sub_offset = given.get(b"stream-forked-from"), given.get(b"stream-fork-sub-offset")
    offset = given.get(b"stream-fork-offset")
    if parent is None:
        if sub_offset is not None or offset is not None:
            raise BadParameterError(
                "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From."
            )
        return None
    return WantedFork(
        topic_of(parent),
        None if offset is None else parse_offset(offset.decode("latin-1")),
        0 if sub_offset is None else _number(sub_offset, "Stream-Fork-Sub-Offset"),
    )


def _number(text: bytes, name: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > limits.OFFSET_MAX:
        raise BadParameterError(f"{name} must be a whole number without sign or leading zeros.")
    return int(text)


def _time(text: bytes) -> int:
    try:
        return max(0, parse_time(text.decode("latin-1")))
    except ValueError as error:
        raise BadParameterError(f"Stream-Expires-At: {error}.") from error


def enter(request: AnyRequest, services: Services, _known: frozenset[str]) -> Call:
    """With an API key, or without one where `ApiOptions.streams_open`: for programs on this machine
    only. A web page is another's program and a proxy speaks for others, so a request of another
    origin, to another host name or forwarded needs a key.

    Raises ForbiddenError, UnauthenticatedError, QuotaExceededError, BadParameterError.
    """
    scope = request.scope
    broker, options = services.broker, services.options
    headers = read_headers(list(scope["headers"]))
    if b"authorization" in headers or not options.streams_open:
        refuse_attached_key(scope, headers)
        token = token_of(headers.get(b"authorization"))
        authenticate = partial(broker.access.authenticate, token)
    else:
        authenticate = partial(_anybody, scope, headers, broker, options)
    key = authenticate()
    let_in(scope, broker.access, key, authenticate)
    return Call(key, headers, _query(scope["query_string"]), peer_address(scope))


def _anybody(
    scope: Scope, headers: dict[bytes, bytes], broker: Broker, options: ApiOptions
) -> ApiKeyView:
    if not (is_local(scope) and is_let_in(headers, options.cors_origins)):
        raise UnauthenticatedError(
            "Only programs on this machine may use streams without an API key. A page of another "
            "origin needs an API key, or its origin in cors_origins."
        )
    return broker.access.let_in_anybody()


def _query(query_string: bytes) -> dict[str, str]:
    """Unknown parameters are ignored, as the protocol asks. Raises BadParameterError."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=32
        )
    except ValueError as error:
        raise BadParameterError("The query must be name=value pairs in UTF-8.") from error
    query: dict[str, str] = {}
    for name, value in pairs:
        if name in query and name in ("offset", "live", "cursor"):
            raise BadParameterError(f"The query parameter {name!r} is given twice.")
        query[name] = value
    return query


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
    begin, end = view.log_start_offset, view.log_end_offset
    tag = etag(view.topic_id, begin, end, 0, closed=state.closed)
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
    """Topics created by their own route are not streams."""
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
    "description": "Path of the stream, which may contain slashes. `chat/room-1` is the topic "
    "`chat.room-1`.",
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
CLOSED_HEADER: Final = {"Stream-Closed": "`true`: the stream is closed and this is its end."}
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


def told(error: RefusedError, code: str, **members: Any) -> RefusedError:
    """The error with the member `error` that the protocol asks for."""
    error.data["error"] = {"code": code, "message": error.detail, **members}
    return error

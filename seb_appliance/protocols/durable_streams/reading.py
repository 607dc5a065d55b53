"""GET and HEAD of Durable Streams, and what comes next by long polls or `live=sse`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from seb_appliance import limits
from seb_appliance.api.encoding.answers import SSE, Answer, Headers
from seb_appliance.api.encoding.parameters import choice
from seb_appliance.api.openapi.parameters import header, query
from seb_appliance.api.openapi.shared import READ_ERRORS
from seb_appliance.api.routes.records.live import HEAD_STATE, LiveAnswer
from seb_appliance.api.routes.records.reading import encoded, unless_gone
from seb_appliance.api.routes.route import (
    Reply,
    RequestContext,
    route,
)
from seb_appliance.api.server.auth import Call
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.read.waiting import Follower, Part
from seb_appliance.broker.streams.admission import StreamView, is_json, media_type_of
from seb_appliance.broker.topics.topic import no_such_topic
from seb_appliance.broker.values import ApiKeyView, From, ReadRequest, ReadResult
from seb_appliance.errors import (
    BadNameError,
    BadParameterError,
)
from seb_appliance.protocols.durable_streams import limits as stream_limits
from seb_appliance.protocols.durable_streams.contents import (
    byte_parts,
    event_data,
    json_event,
    json_parts,
    read_apart,
)
from seb_appliance.protocols.durable_streams.wire import (
    CLOSED,
    CLOSED_HEADER,
    CROSS_ORIGIN,
    CURSOR,
    NEXT_HEADER,
    NO_STORE,
    OF_STREAM,
    PATH,
    SAYS,
    TAG,
    UP_TO_DATE,
    WHAT_THERE_IS,
    Cursors,
    described,
    enter,
    etag,
    next_offset,
    of_content,
    offset_token,
    parse_offset,
    topic_of,
)
from seb_appliance.tasks import in_slices

Live = Literal["", "long-poll", "sse"]
_LIVE: Final[tuple[Live, ...]] = ("", "long-poll", "sse")

# What lies before the end never changes; the end may at any time.
_SETTLED: Final = (b"cache-control", b"private, max-age=60, stale-while-revalidate=300")
_AT_END: Final = (b"cache-control", b"private, no-cache")
_VARY: Final = (b"vary", b"Authorization")


@dataclass(frozen=True, slots=True)
class Asked:
    """`offset` None: from the beginning; `from_now`: only what is still to come."""

    offset: int | None
    from_now: bool
    live: Live
    cursor: str | None


def _asked(call: Call) -> Asked:
    """Raises BadParameterError."""
    given = call.query.get("offset")
    live = choice(call.query.get("live", ""), "live", _LIVE)
    if live and given is None:
        raise BadParameterError(f"live={live} needs an offset; -1 is the beginning.")
    from_now = given == "now"
    offset = None if given is None or given == "-1" or from_now else parse_offset(given)
    return Asked(offset, from_now, live, call.query.get("cursor"))


def _begin(asked: Asked, view: StreamView) -> int:
    """Raises BadParameterError."""
    if asked.from_now:
        return view.log_end_offset
    offset = view.log_start_offset if asked.offset is None else asked.offset
    if offset > view.log_end_offset:
        raise BadParameterError(
            "The offset is beyond the end of the stream. The stream may have been deleted and "
            "created again."
        )
    return offset


def _request(offset: int) -> ReadRequest:
    return ReadRequest(
        From(offset=offset),
        max_records=stream_limits.READ_RECORDS,
        max_bytes=stream_limits.READ_BYTES,
    )


def _only_the_end(view: StreamView) -> Answer:
    headers: Headers = [
        CROSS_ORIGIN,
        NO_STORE,
        *of_content(view.state.content_type),
        next_offset(view.log_end_offset),
        UP_TO_DATE,
    ]
    if view.state.closed:
        headers.append(CLOSED)
    return Answer(200, headers, b"[]" if is_json(view.state.content_type) else b"")


def _nothing_new(view: StreamView, headers: Headers) -> Answer:
    headers += [CROSS_ORIGIN, NO_STORE, next_offset(view.log_end_offset), UP_TO_DATE]
    if view.state.closed:
        headers.append(CLOSED)
    return Answer(204, headers)


async def _answer(ctx: RequestContext, offset: int, result: ReadResult, headers: Headers) -> Answer:
    broker, call = ctx.broker, ctx.call
    view = broker.streams.get(result.topic)
    if view.topic_id != result.topic_id:  # created again while its records were fetched
        raise no_such_topic(result.topic)
    up_to_date = result.next_offset == view.log_end_offset
    closed = up_to_date and view.state.closed
    stored_us = result.slices[-1].batch.header.created_us if result.slices else 0
    tag = etag(view.topic_id, offset, result.next_offset, stored_us, closed=closed)
    headers += [CROSS_ORIGIN, _VARY, (b"etag", tag), _AT_END if up_to_date else _SETTLED]
    if call.headers.get(b"if-none-match") == tag:
        return Answer(304, headers)
    headers += [
        *of_content(view.state.content_type),
        next_offset(result.next_offset),
    ]
    if up_to_date:
        headers.append(UP_TO_DATE)
    if closed:
        headers.append(CLOSED)
    if not is_json(view.state.content_type):
        return await encoded(broker, call, headers, byte_parts(result))
    apart = await read_apart(ctx.options.parser, call.owner, result)
    return await encoded(broker, call, headers, json_parts(result, apart))


@route(
    "GET",
    "/v1/stream/{path}",
    "readStream",
    summary="Read a stream",
    description=SAYS,
    parameters=[
        PATH,
        query(
            "offset",
            "A `Stream-Next-Offset` of an earlier answer, -1 (the beginning) or now (the end).",
            "-1",
        ),
        query("live", "`long-poll` waits for more data; `sse` keeps the stream open.", "sse"),
        query(
            "cursor",
            "The `Stream-Cursor` of the last answer; it keeps caches between from repeating "
            "answers.",
            "1000",
        ),
        header("If-None-Match", "The ETag of the last answer."),
    ],
    replies={
        200: Reply(
            description="The data from the offset on; for a JSON stream, an array",
            content=WHAT_THERE_IS,
            headers={**OF_STREAM, "Stream-Up-To-Date": "`true`: it reaches the end."},
        ),
        204: Reply(description="Nothing came in time", headers={**NEXT_HEADER, **CLOSED_HEADER}),
        304: Reply(description="As the reader has it"),
    },
    errors=(*READ_ERRORS, BadNameError),
    tag=TAG,
    authenticate=enter,
    refuses=False,
)
async def read(ctx: RequestContext) -> object:
    topic = topic_of(ctx.request.scope["raw_path"])
    ctx.broker.authorize(ctx.call.key, "consume", topic)
    if ctx.request.scope["state"].get(HEAD_STATE):
        return Answer(200, described(ctx.broker.streams.get(topic)))
    asked = _asked(ctx.call)
    view = ctx.broker.streams.use(topic)
    offset = _begin(asked, view)
    if asked.live == "sse":
        return LiveStream(
            ctx.broker,
            topic,
            ctx.call,
            view,
            offset,
            Cursors(ctx.options.now_s, ctx.options.random_up_to),
            ctx.options.parser,
        )
    if asked.from_now and not asked.live:
        return _only_the_end(view)
    headers: Headers = []
    if asked.live:
        if offset >= view.log_end_offset and not view.state.closed:
            waiting = ctx.broker.streams.wait(view, offset, stream_limits.POLL_S, ctx.call.owner)
            view = await unless_gone(waiting, ctx.broker, ctx.request, waits=True)
        cursor = Cursors(ctx.options.now_s, ctx.options.random_up_to).after(asked.cursor)
        headers.append((CURSOR, str(cursor).encode()))
        if offset == view.log_end_offset:
            return _nothing_new(view, headers)
    result = await ctx.broker.read(topic, _request(offset))
    return await _answer(ctx, offset, result, headers)


ROUTES: Final = [read]


_HEADERS: Final[Headers] = [
    (b"content-type", SSE),
    (b"cache-control", b"no-cache"),
    (b"vary", b"Authorization"),
    (b"x-accel-buffering", b"no"),  # nginx would collect a buffer full first
    (b"connection", b"close"),  # the end of the answer is the end of the connection
    CROSS_ORIGIN,
]


class LiveStream(LiveAnswer[Follower]):
    """The stream from `offset` on, until it is closed, or for about a minute: then the reader comes
    again, as the protocol has it, so that caches in between let go of the answer."""

    _headers: ClassVar[Headers] = _HEADERS

    def __init__(
        self,
        broker: Broker,
        topic: str,
        call: Call,
        view: StreamView,
        offset: int,
        cursors: Cursors,
        parser: Parser,
    ) -> None:
        super().__init__(broker, call)
        self._topic = topic
        self._offset = offset
        self._cursors = cursors
        self._parser = parser
        self._json = is_json(view.state.content_type)
        is_text = media_type_of(view.state.content_type).startswith("text/")
        self._in_base64 = not (self._json or is_text)
        # Of parts that followers share, beside those of the record API.
        self._shape = f"stream {self._json} {self._in_base64}"
        self._told_end = False  # that it has reached the log end
        self._is_closed = False
        self._until_s = cursors.now_s() + stream_limits.LIVE_S

    @property
    def _begins(self) -> Headers:
        return [(b"stream-sse-data-encoding", b"base64")] if self._in_base64 else []

    async def _follow(self) -> Follower:
        return self._broker.follow(self._topic, self._call.owner)

    def _opening(self, follower: Follower) -> bytes:  # noqa: ARG002
        return b""

    async def _authorize(self, follower: Follower, key: ApiKeyView) -> None:  # noqa: ARG002
        self._broker.access.authorize(key, "consume", self._topic)

    def _is_over(self) -> bool:
        return self._is_closed or self._cursors.now_s() >= self._until_s

    async def _next_part(self, follower: Follower) -> bytes | None:
        data = b""
        if self._offset < follower.log_end_offset:
            part = await self._part(follower)
            self._offset = part.next_offset
            data = part.encoded
        view = self._broker.streams.use(self._topic)
        at_end = self._offset >= view.log_end_offset
        if not data and self._told_end and not view.state.closed:
            return None
        self._told_end = at_end
        self._is_closed = at_end and view.state.closed
        return data + self._control(at_end=at_end)

    def _control(self, *, at_end: bool) -> bytes:
        token = offset_token(self._offset)
        if self._is_closed:
            more = b'"streamClosed":true'
        else:
            cursor = self._cursors.after(self._call.query.get("cursor"))
            more = b'"streamCursor":"%d"%b' % (cursor, b',"upToDate":true' if at_end else b"")
        return b'event: control\ndata:{"streamNextOffset":"%b",%b}\n\n' % (token, more)

    async def _part(self, follower: Follower) -> Part:
        """Encoded once for all followers at the same offset."""
        if not self._told_end:
            return await self._made()
        place = (follower.topic_id, self._shape, self._offset)
        return await self._broker.followers.recent.made_once(place, self._made)

    async def _made(self) -> Part:
        return await self._encoded(await self._read())

    async def _read(self) -> ReadResult:
        """Waits for at least one record. Raises TopicNotFoundError also if the topic is deleted in
        the meantime."""
        wanted = ReadRequest(
            From(offset=self._offset),
            max_records=limits.FOLLOWER_PART_RECORDS,
            max_bytes=limits.FOLLOWER_PART_BYTES,
        )
        result = self._broker.read_nowait(self._topic, wanted)
        return result or await self._broker.read(self._topic, wanted)

    async def _encoded(self, result: ReadResult) -> Part:
        count = sum(piece.end - piece.begin for piece in result.slices)
        self._broker.counters.live_encoded += count
        parts = event_data(result, in_base64=self._in_base64)
        if self._json:
            apart = await read_apart(self._parser, self._call.owner, result)
            parts = json_event(json_parts(result, apart))
        encoded = b"".join([part async for part in in_slices(parts)])
        return Part(encoded, count, result.next_offset)

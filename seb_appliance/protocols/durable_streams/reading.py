"""GET and HEAD: what there is of a stream, what comes next, and what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Answer, Headers
from seb_appliance.api.encoding.parameters import choice
from seb_appliance.api.routes.records.consume import encoded, unless_gone
from seb_appliance.api.routes.records.live import HEAD_STATE
from seb_appliance.api.server.auth import AnyRequest, Call
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.streams.admission import StreamView, is_json
from seb_appliance.broker.topics.topic import no_such_topic
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError
from seb_appliance.protocols.durable_streams.answers import (
    CLOSED,
    CROSS_ORIGIN,
    CURSOR,
    NO_STORE,
    UP_TO_DATE,
    described,
    next_offset,
    of_content,
)
from seb_appliance.protocols.durable_streams.contents import byte_parts, json_parts
from seb_appliance.protocols.durable_streams.headers import etag, parse_offset
from seb_appliance.protocols.durable_streams.live import LiveStream
from seb_appliance.protocols.durable_streams.names import topic_of
from seb_appliance.protocols.durable_streams.stream_auth import enter

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


def routes(broker: Broker, options: ApiOptions) -> list[HTTPRouteHandler]:
    @get("/{path:path}")
    async def read(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, options)
        topic = topic_of(request.scope["raw_path"])
        broker.authorize(call.key, "consume", topic)
        if request.scope["state"].get(HEAD_STATE):
            return Answer(200, described(broker.streams.get(topic)))
        asked = _asked(call)
        view = broker.streams.use(topic)
        offset = _begin(asked, view)
        if asked.live == "sse":
            return LiveStream(broker, topic, call, view, offset, options.streams.cursors)
        if asked.from_now and not asked.live:
            return _only_the_end(view)
        headers: Headers = []
        if asked.live:
            if offset >= view.log_end_offset and not view.state.closed:
                waiting = broker.streams.wait(view, offset, limits.STREAM_POLL_S, call.owner)
                view = await unless_gone(waiting, request, waits=True)
            cursor = options.streams.cursors.after(asked.cursor)
            headers.append((CURSOR, str(cursor).encode()))
            if offset == view.log_end_offset:
                return _nothing_new(view, headers)
        result = await broker.read(topic, _request(offset))
        return await _answer(broker, call, offset, result, headers)

    return [read]


def _asked(call: Call) -> Asked:
    """Raises BadParameterError."""
    given = call.query.get("offset")
    live = choice(call.query.get("live", ""), "live", _LIVE)
    if live and given is None:
        raise BadParameterError(f"live={live} comes with an offset; -1 is the beginning.")
    from_now = given == "now"
    offset = None if given is None or given == "-1" or from_now else parse_offset(given)
    return Asked(offset, from_now, live, call.query.get("cursor"))


def _begin(asked: Asked, view: StreamView) -> int:
    """Raises BadParameterError."""
    if asked.from_now:
        return view.log_end_offset
    offset = view.log_start_offset if asked.offset is None else asked.offset
    if offset > view.log_end_offset:
        raise BadParameterError("The offset is beyond the end: the stream was made anew, perhaps.")
    return offset


def _request(offset: int) -> ReadRequest:
    return ReadRequest(
        From(offset=offset),
        max_records=limits.STREAM_READ_RECORDS,
        max_bytes=limits.STREAM_READ_BYTES,
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


async def _answer(
    broker: Broker, call: Call, offset: int, result: ReadResult, headers: Headers
) -> Answer:
    view = broker.streams.get(result.topic)
    if view.topic_id != result.topic_id:  # made anew while its records were fetched
        raise no_such_topic(result.topic)
    up_to_date = result.next_offset == view.log_end_offset
    closed = up_to_date and view.state.closed
    tag = etag(view.topic_id, offset, result.next_offset, closed=closed)
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
    parts = json_parts(result) if is_json(view.state.content_type) else byte_parts(result)
    return await encoded(broker, call, headers, parts)

"""`live=sse` of Durable Streams: what there is and what comes, as `data` events, each with a
`control` event that says where the reader is then."""

from __future__ import annotations

from typing import ClassVar, Final

from seb_appliance import limits
from seb_appliance.api.encoding.answers import SSE, Headers
from seb_appliance.api.routes.records.live import LiveAnswer
from seb_appliance.api.server.auth import Call
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.read.waiting import Follower, Part
from seb_appliance.broker.streams.admission import StreamView, is_json, media_type_of
from seb_appliance.broker.values import ApiKeyView, From, ReadRequest, ReadResult
from seb_appliance.protocols.durable_streams.answers import CROSS_ORIGIN
from seb_appliance.protocols.durable_streams.contents import event_data
from seb_appliance.protocols.durable_streams.headers import Cursors, offset_token

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
    ) -> None:
        super().__init__(broker, call)
        self._topic = topic
        self._offset = offset
        self._cursors = cursors
        self._json = is_json(view.state.content_type)
        is_text = media_type_of(view.state.content_type).startswith("text/")
        self._in_base64 = not (self._json or is_text)
        # Of parts that followers share, beside those of the record API.
        self._shape = f"stream {self._json} {self._in_base64}"
        self._told_end = False  # that it has reached the log end
        self._is_closed = False
        self._until_s = cursors.now_s() + limits.STREAM_LIVE_S

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
        """Made once for all who follow from the same offset."""
        recent = self._broker.followers.recent
        place = (follower.topic_id, self._shape, self._offset)
        found = recent.get(place) if self._told_end else None
        if found is None:
            result = await self._read()
            found = recent.get(place) if self._told_end else None  # another may have been faster
            if found is None:
                found = self._encoded(result)
                if self._told_end:
                    recent.put(place, found)
        return found

    async def _read(self) -> ReadResult:
        """At least one record. Raises TopicNotFoundError also if the topic goes meanwhile."""
        wanted = ReadRequest(
            From(offset=self._offset),
            max_records=limits.FOLLOWER_PART_RECORDS,
            max_bytes=limits.FOLLOWER_PART_BYTES,
        )
        result = self._broker.read_nowait(self._topic, wanted)
        return result or await self._broker.read(self._topic, wanted)

    def _encoded(self, result: ReadResult) -> Part:
        count = sum(piece.end - piece.begin for piece in result.slices)
        self._broker.counters.live_encoded += count
        encoded = event_data(result, json=self._json, in_base64=self._in_base64)
        return Part(encoded, count, result.next_offset)

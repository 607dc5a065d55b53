"""`GET /v1/topics/{topic}/records` as `text/event-stream`: the records there are, then each one as
it comes, until the client leaves.

The stream begins once the first read has succeeded, so that refusals known by then are ordinary
answers. Followers at the log end share what is encoded (`RecentParts`); those behind read and
encode for themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Generic, TypeVar

from litestar.types import Receive, Scope, Send

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import SSE, Headers, body_event, send_part
from seb_appliance.api.encoding.problems import REQUEST_ID_STATE, problem_body
from seb_appliance.api.encoding.record_encoding import PartEncoder, ValueShape, records
from seb_appliance.api.server.auth import METER_STATE, Call, authenticated_again, within_quota
from seb_appliance.broker.access.grants import grants_admin
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.read.waiting import Follower, Listener, Part
from seb_appliance.broker.values import ApiKeyView, From, ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError, FollowerTooSlowError, SebError
from seb_appliance.tasks import disconnected, in_slices

# What live streams have in common: they begin, send what there is, sleep, ping, and end.
#
# A stream holds no more than the part that it is sending. What is refused once it has begun comes
# as an `error` event with the problem document.


HEAD_STATE: Final = "seb_head"  # the client wants the headers only
_HEADERS: Final[Headers] = [
    (b"content-type", SSE + b"; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"vary", b"Accept, Accept-Encoding, Authorization"),
    (b"x-accel-buffering", b"no"),  # nginx would collect a buffer full first
    (b"connection", b"close"),  # the end of the answer is the end of the connection
]
RETRY: Final = b"retry: 1000\n"  # ms after which an EventSource comes back
_PING: Final = b": ping\n\n"
_END: Final = b": end\n\n"
_STOPPING: Final = b": the appliance stops\n\n"
L = TypeVar("L", bound=Listener)


class LiveAnswer(Generic[L]):
    """An ASGI application that sends one stream; its creator passes the content."""

    def __init__(self, broker: Broker, call: Call) -> None:
        self._broker = broker
        self._call = call
        self._key = call.key
        self._holds_until_us = broker.access.holds_until_us(call.key)

    # --- what the kinds of streams differ in ---

    _headers: ClassVar[Headers] = _HEADERS

    @property
    def _begins(self) -> Headers:
        """Headers that say where the stream begins."""
        raise NotImplementedError

    async def _follow(self) -> L:
        """Raises what `Broker.follow` raises."""
        raise NotImplementedError

    def _opening(self, follower: L) -> bytes:
        """What is sent first."""
        raise NotImplementedError

    async def _authorize(self, follower: L, key: ApiKeyView) -> None:
        """The API key has changed. Raises ForbiddenError."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether all that was asked for has been sent."""
        raise NotImplementedError

    async def _next_part(self, follower: L) -> bytes | None:
        """The next part, after which the stream has advanced; None if there is nothing yet."""
        raise NotImplementedError

    # --- the stream ---

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with await self._follow() as follower:
            headers = [*self._headers, *self._begins]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["state"].get(HEAD_STATE):
                await send(body_event(b"", more=False))
                return
            leaving = asyncio.create_task(disconnected(receive, follower.leave))
            try:
                last = await self._stream(follower, scope, send)
            finally:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
        # Its place is free: however long the client takes to hear this, it holds nothing.
        await send(body_event(last, more=False))

    async def _stream(self, follower: L, scope: Scope, send: Send) -> bytes:
        """Sends until there is a reason to end; returns the last event, which says why."""
        try:
            await self._send(send, self._opening(follower))
            rings = follower.rings
            while not follower.left:
                if follower.stopping:
                    return _STOPPING
                await self._check_key(follower, scope)
                if self._is_over():
                    return _END
                part = await self._part_within_quota(follower, scope)
                if part is not None:
                    await self._send(send, part)
                elif rings != follower.rings:
                    self._broker.look_for_newer_writer()
                    await self._send(send, _PING)
                else:
                    await follower.wait()
                    continue
                rings = follower.rings
        except SebError as error:
            return self._told(scope, error)
        return b""

    async def _part_within_quota(self, follower: L, scope: Scope) -> bytes | None:
        """The next part, once the API key's quota allows it; None if there is nothing, or a comment
        or the end is due."""
        rings = follower.rings

        def is_over() -> bool:
            return follower.left or follower.stopping or rings != follower.rings

        await within_quota(scope, is_over, follower.wait)
        return None if is_over() else await self._next_part(follower)

    async def _check_key(self, follower: L, scope: Scope) -> None:
        """Raises UnauthenticatedError, ForbiddenError."""
        access = self._broker.access
        if access.still_holds(self._key, self._holds_until_us):
            return
        self._key = authenticated_again(self._broker, self._call)
        await self._authorize(follower, self._key)
        self._holds_until_us = access.holds_until_us(self._key)
        scope["state"][METER_STATE] = access.meters.of(self._key)

    async def _send(self, send: Send, content: bytes) -> None:
        """Returns when the client has taken `content`. Raises ShareExceededError, OverloadedError,
        FollowerTooSlowError."""
        with self._broker.followers.budget.reserve(self._call.owner, len(content)):
            try:
                async with asyncio.timeout(limits.FOLLOWER_STALLED_S_MAX):
                    await send_part(send, content)
            except TimeoutError:
                self._broker.followers.cut += 1
                raise FollowerTooSlowError(
                    f"The client received nothing for {limits.FOLLOWER_STALLED_S_MAX} s. Connect "
                    "again with Last-Event-ID."
                ) from None

    def _told(self, scope: Scope, error: SebError) -> bytes:
        request_id = str(scope["state"].get(REQUEST_ID_STATE, ""))
        document = problem_body(error, request_id, to_admin=grants_admin(self._key.grants))
        return b"event: error\ndata: %b\n" % document


_NOT_LIVE: Final = ("wait", "max_bytes")
_BEFORE_ALL: Final = "-1"  # the id with which a stream begins that begins at offset 0
_PART: Final = ReadRequest(
    From(earliest=True),
    max_records=limits.FOLLOWER_PART_RECORDS,
    max_bytes=limits.FOLLOWER_PART_BYTES,
)


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """`until`: exclusive; above all offsets if there is no end. `most`: the stream ends after this
    number of records; None: it does not."""

    start: From
    until: int
    most: int | None
    shape: ValueShape
    topic_id: int | None = None


def live_request(call: Call, shape: ValueShape) -> LiveRequest:
    """What a follower asks for. `Last-Event-ID` wins over `offset`. Raises BadParameterError."""
    for name in _NOT_LIVE:
        if name in call.query:
            raise BadParameterError(f"{name} cannot be used with a live stream.")
    most = call.query.get("max_records")
    return LiveRequest(
        _start(call),
        limits.OFFSET_MAX + 1 if call.query.get("until") is None else _until(call.query["until"]),
        None
        if most is None
        else parameters.integer(most, "max_records", smallest=1, largest=limits.OFFSET_MAX),
        shape,
        parameters.topic_id(call.query),
    )


def _start(call: Call) -> From:
    last = call.headers.get(b"last-event-id", b"").decode("latin-1")
    if not last:
        return parameters.position(call.query.get("offset", "earliest"), "offset")
    if last == _BEFORE_ALL:
        return From(offset=0)
    seen = parameters.integer(last, "Last-Event-ID", smallest=0, largest=limits.OFFSET_MAX)
    return From(offset=seen + 1)


def _until(text: str) -> int:
    place = parameters.end_position(text, "until")
    if place.offset is None:
        raise BadParameterError("In a live stream, until must be an offset.")
    return place.offset


class LiveRecords(LiveAnswer[Follower]):
    """The stream of one topic, from `offset` on."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        call: Call,
        wanted: LiveRequest,
        offset: int,
        topic_id: int,
    ) -> None:
        super().__init__(broker, call)
        self._topic = topic
        self._topic_id = topic_id
        self._shape = wanted.shape
        self._offset = offset
        self._until = wanted.until
        self._left = wanted.most
        self._at_end = False  # it has reached the log end once

    @classmethod
    async def of(cls, broker: Broker, topic: str, call: Call, shape: ValueShape) -> LiveRecords:
        """Raises BadParameterError, and what `Broker.read` raises."""
        wanted = live_request(call, shape)
        asked = replace(_PART, start=wanted.start, max_records=1, topic_id=wanted.topic_id)
        first = await broker.read(topic, asked)
        offset = first.next_offset
        if first.slices:
            piece = first.slices[0]
            offset = piece.batch.offsets()[piece.begin]
        return cls(broker, topic, call, wanted, offset, first.topic_id)

    @property
    def _begins(self) -> Headers:
        return [
            (b"seb-next-offset", str(self._offset).encode()),
            (b"seb-topic-id", str(self._topic_id).encode()),
        ]

    async def _follow(self) -> Follower:
        return self._broker.follow(self._topic, self._call.owner)

    def _opening(self, follower: Follower) -> bytes:  # noqa: ARG002
        # An id without data: who loses the connection before the first record comes back to here.
        return RETRY + b"id: %d\n\n" % (self._offset - 1)

    async def _authorize(self, follower: Follower, key: ApiKeyView) -> None:  # noqa: ARG002
        self._broker.access.authorize(key, "consume", self._topic)

    def _is_over(self) -> bool:
        return self._offset >= self._until or self._left == 0

    async def _next_part(self, follower: Follower) -> bytes | None:
        if self._offset >= follower.log_end_offset:
            self._at_end = True
            return None
        part = await self._part(follower)
        self._offset = part.next_offset
        if self._left is not None:
            self._left -= part.count
        return part.encoded

    async def _part(self, follower: Follower) -> Part:
        """Encoded once for all followers at the same offset."""
        if not (self._at_end and self._left is None and self._until > limits.OFFSET_MAX):
            return await self._made(follower)
        place = (follower.topic_id, self._shape, self._offset)
        return await self._broker.followers.recent.made_once(place, lambda: self._made(follower))

    async def _made(self, follower: Follower) -> Part:
        return await self._encoded(await self._read(follower))

    async def _read(self, follower: Follower) -> ReadResult:
        """Waits for at least one record. Raises TopicNotFoundError also if the topic is deleted in
        the meantime."""
        until = None if self._until > limits.OFFSET_MAX else From(offset=self._until)
        most = limits.FOLLOWER_PART_RECORDS
        most = most if self._left is None else min(self._left, most)
        wanted = replace(_PART, start=From(offset=self._offset), until=until, max_records=most)
        result = self._broker.read_nowait(self._topic, wanted)
        if result is None:
            result = await self._broker.read(self._topic, wanted)
        assert follower.log_end_offset >= result.next_offset, (self._topic, result.next_offset)
        return result

    async def _encoded(self, result: ReadResult) -> Part:
        count = sum(piece.end - piece.begin for piece in result.slices)
        self._broker.counters.live_encoded += count
        parts = [part async for part in in_slices(events(result, self._shape))]
        return Part(b"".join(parts), count, result.next_offset)


def events(result: ReadResult, shape: ValueShape) -> Iterator[bytes]:
    """To be joined: one event for each record; its id is the record's offset."""
    encoder = PartEncoder()
    for record in records(result, shape):
        yield from encoder.pieces(b"id: %d\ndata: %b\n\n" % (record.offset, encoder.encode(record)))

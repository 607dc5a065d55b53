"""`GET /v1/topics/{topic}/records` as `text/event-stream`: the records there are, then each one as
it comes, until the client leaves.

The stream begins once the first read has succeeded, so that refusals known by then are ordinary
answers; what is refused later comes as an `error` event with the problem document. Followers at the
log end share what is encoded (`RecentParts`); those behind read and encode for themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, cast

import msgspec
from litestar.types import HTTPResponseBodyEvent, Message, Receive, Scope, Send

from seb_appliance import limits
from seb_appliance.api import parameters
from seb_appliance.api.answers import SSE, Headers
from seb_appliance.api.auth import METER_STATE, Call, token_of
from seb_appliance.api.encode_json import ValueShape, records
from seb_appliance.api.problems import REQUEST_ID_STATE, problem_body
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.following import Follower, Part
from seb_appliance.broker.grants import grants_admin
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError, FollowerTooSlowError, SebError

HEAD_STATE: Final = "seb_head"  # the client wants the headers only
_NOT_LIVE: Final = ("wait", "max_bytes")
_PART: Final = ReadRequest(
    From(earliest=True),
    max_records=limits.FOLLOWER_PART_RECORDS,
    max_bytes=limits.FOLLOWER_PART_BYTES,
)
_HEADERS: Final[Headers] = [
    (b"content-type", SSE + b"; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"vary", b"Accept, Accept-Encoding, Authorization"),
    (b"x-accel-buffering", b"no"),  # nginx would collect a buffer full first
    (b"connection", b"close"),  # the end of the answer is the end of the connection
]
_RETRY: Final = b"retry: 1000\n\n"  # ms after which an EventSource comes back
_PING: Final = b": ping\n\n"
_END: Final = b": end\n\n"
_STOPPING: Final = b": the appliance stops\n\n"


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """`until`: exclusive, beyond all offsets for none; `most`: so many records, then the stream
    ends; None: it does not."""

    start: From
    until: int
    most: int | None
    shape: ValueShape


def live_request(call: Call, shape: ValueShape) -> LiveRequest:
    """What a follower asks for. `Last-Event-ID` wins over `offset`. Raises BadParameterError."""
    for name in _NOT_LIVE:
        if name in call.query:
            raise BadParameterError(f"{name} has no meaning in a live stream, which never ends.")
    most = call.query.get("max_records")
    return LiveRequest(
        _start(call),
        limits.OFFSET_MAX + 1 if call.query.get("until") is None else _until(call.query["until"]),
        None
        if most is None
        else parameters.integer(most, "max_records", smallest=1, largest=limits.OFFSET_MAX),
        shape,
    )


def _start(call: Call) -> From:
    last = call.headers.get(b"last-event-id", b"").decode("latin-1")
    if not last:
        return parameters.position(call.query.get("offset", "earliest"), "offset")
    seen = parameters.integer(last, "Last-Event-ID", smallest=0, largest=limits.OFFSET_MAX)
    return From(offset=seen + 1)


def _until(text: str) -> int:
    place = parameters.end_position(text, "until")
    if place.offset is None:
        raise BadParameterError("until is an offset in a live stream.")
    return place.offset


class LiveRecords:
    """An ASGI application that sends one stream, from `offset` on."""

    def __init__(
        self, broker: Broker, topic: str, call: Call, wanted: LiveRequest, offset: int
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._shape = wanted.shape
        self._offset = offset
        self._until = wanted.until
        self._left = wanted.most
        self._at_end = False  # it has reached the log end once
        self._token = token_of(call.headers.get(b"authorization"))
        self._key = call.key
        self._holds_until_us = broker.access.holds_until_us(call.key)

    @classmethod
    async def of(cls, broker: Broker, topic: str, call: Call, shape: ValueShape) -> LiveRecords:
        """Raises BadParameterError, and what `Broker.read` raises."""
        wanted = live_request(call, shape)
        first = await broker.read(topic, replace(_PART, start=wanted.start, max_records=1))
        offset = first.next_offset
        if first.slices:
            piece = first.slices[0]
            offset = piece.batch.offsets()[piece.begin]
        return cls(broker, topic, call, wanted, offset)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._broker.follow(self._topic) as follower:
            begins = (b"seb-next-offset", str(self._offset).encode())
            headers = [*_HEADERS, begins]
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

    async def _stream(self, follower: Follower, scope: Scope, send: Send) -> bytes:
        """Sends until there is a reason to end; what the client is told of it."""
        try:
            await self._send(send, _RETRY)
            rings = follower.rings
            while not follower.left:
                if follower.stopping:
                    return _STOPPING
                self._check_key(scope)
                if self._offset >= self._until or self._left == 0:
                    return _END
                if self._offset < follower.log_end_offset:
                    part = await self._next_part(follower)
                    await self._send(send, part.encoded)
                    self._offset = part.next_offset
                    if self._left is not None:
                        self._left -= part.count
                elif rings != follower.rings:
                    self._broker.look_for_newer_writer()
                    await self._send(send, _PING)
                else:
                    self._at_end = True
                    await follower.wait()
                    continue
                rings = follower.rings
        except SebError as error:
            return self._told(scope, error)
        return b""

    def _check_key(self, scope: Scope) -> None:
        """Raises UnauthenticatedError, ForbiddenError, QuotaExceededError."""
        access = self._broker.access
        if access.still_holds(self._key, self._holds_until_us):
            return
        self._key = access.authenticate(self._token)
        access.authorize(self._key, "consume", self._topic)
        self._holds_until_us = access.holds_until_us(self._key)
        scope["state"][METER_STATE] = access.meters.enter(self._key)

    async def _next_part(self, follower: Follower) -> Part:
        """What comes next, once for all who follow from the same offset."""
        if not (self._at_end and self._left is None and self._until > limits.OFFSET_MAX):
            return self._encoded(await self._read(follower))
        recent = self._broker.followers.recent
        place = (follower.topic_id, self._shape, self._offset)
        found = recent.get(place)
        if found is None:
            result = await self._read(follower)
            found = recent.get(place)  # another one may have been faster
        if found is None:
            found = self._encoded(result)
            recent.put(place, found)
        return found

    async def _read(self, follower: Follower) -> ReadResult:
        """At least one record. Raises TopicNotFoundError also if the topic goes meanwhile."""
        until = None if self._until > limits.OFFSET_MAX else From(offset=self._until)
        most = limits.FOLLOWER_PART_RECORDS
        most = most if self._left is None else min(self._left, most)
        wanted = replace(_PART, start=From(offset=self._offset), until=until, max_records=most)
        result = self._broker.read_at_once(self._topic, wanted)
        if result is None:
            result = await self._broker.read(self._topic, wanted)
        assert follower.log_end_offset >= result.next_offset, (self._topic, result.next_offset)
        return result

    def _encoded(self, result: ReadResult) -> Part:
        count = sum(piece.end - piece.begin for piece in result.slices)
        self._broker.counters.live_encoded += count
        return Part(events(result, self._shape), count, result.next_offset)

    async def _send(self, send: Send, content: bytes) -> None:
        """Returns when the client has taken nearly all of `content`. Raises OverloadedError,
        FollowerTooSlowError."""
        with self._broker.followers.budget.reserve(len(content)):
            try:
                async with asyncio.timeout(limits.FOLLOWER_STALLED_S_MAX):
                    await send(body_event(content))
                    await send(body_event(b""))  # returns when the buffers have emptied
            except TimeoutError:
                self._broker.followers.cut += 1
                raise FollowerTooSlowError(
                    f"Nothing was taken for {limits.FOLLOWER_STALLED_S_MAX} s; follow again with "
                    "Last-Event-ID."
                ) from None

    def _told(self, scope: Scope, error: SebError) -> bytes:
        request_id = str(scope["state"].get(REQUEST_ID_STATE, ""))
        document = problem_body(error, request_id, to_admin=grants_admin(self._key.grants))
        return b"event: error\ndata: %b\n\n" % document


def events(result: ReadResult, shape: ValueShape) -> bytes:
    """One event for each record; its id is the record's offset."""
    encode = msgspec.json.Encoder().encode
    return b"".join(
        b"id: %d\ndata: %b\n\n" % (record.offset, encode(record))
        for record in records(result, shape)
    )


def body_event(content: bytes, *, more: bool = True) -> Message:
    event: HTTPResponseBodyEvent = {
        "type": "http.response.body",
        "body": content,
        "more_body": more,
    }
    return cast("Message", event)


async def disconnected(receive: Receive, leave: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()

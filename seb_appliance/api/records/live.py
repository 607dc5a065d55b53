"""`GET /v1/topics/{topic}/records` as `text/event-stream`: the records there are, then each one as
it comes, until the client leaves.

The stream begins once the first read has succeeded, so that refusals known by then are ordinary
answers. Followers at the log end share what is encoded (`RecentParts`); those behind read and
encode for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api import parameters
from seb_appliance.api.answers import Headers
from seb_appliance.api.auth import Call
from seb_appliance.api.records.encode_json import ValueShape, records
from seb_appliance.api.records.live_answers import RETRY, LiveAnswer
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.following import Follower, Part
from seb_appliance.broker.values import ApiKeyView, From, ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError

_NOT_LIVE: Final = ("wait", "max_bytes")
_BEFORE_ALL: Final = "-1"  # the id with which a stream begins that begins at offset 0
_PART: Final = ReadRequest(
    From(earliest=True),
    max_records=limits.FOLLOWER_PART_RECORDS,
    max_bytes=limits.FOLLOWER_PART_BYTES,
)


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """`until`: exclusive, beyond all offsets for none; `most`: so many records, then the stream
    ends; None: it does not."""

    start: From
    until: int
    most: int | None
    shape: ValueShape
    topic_id: int | None = None


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
        raise BadParameterError("until is an offset in a live stream.")
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
        """Made once for all who follow from the same offset."""
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


def events(result: ReadResult, shape: ValueShape) -> bytes:
    """One event for each record; its id is the record's offset."""
    encode = msgspec.json.Encoder().encode
    return b"".join(
        b"id: %d\ndata: %b\n\n" % (record.offset, encode(record))
        for record in records(result, shape)
    )

"""`GET /v1/records?topics=…` as `text/event-stream`: many topics in one stream.

The stream's place is the next offset in each of its topics. It is the id of each event, so that
Last-Event-ID goes on in all of them behind the last event that was received. A topic that a place
does not name is read from its log start: it was made later, or may only now be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api import parameters
from seb_appliance.api.answers import SSE, Headers
from seb_appliance.api.auth import AnyRequest, Call, enter_to_read
from seb_appliance.api.encode_json import RecordOut, ValueShape, records
from seb_appliance.api.live_answers import RETRY, LiveAnswer
from seb_appliance.api.records_consume import answer_type, value_shape
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.catalog import Topic
from seb_appliance.broker.following import FollowerOfMany, Part, check_count
from seb_appliance.broker.names import check_pattern
from seb_appliance.broker.patterns import Patterns
from seb_appliance.broker.values import ApiKeyView, From, ReadRequest, ReadResult
from seb_appliance.errors import (
    BadParameterError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
)

QUERY: Final = frozenset({"topics", "offset", "cursor", "max_records", "values", "format"})
STARTS: Final = ("earliest", "latest")
FORMATS: Final = {"sse": SSE.decode()}
_CURSOR: Final = re.compile(r"[0-9]{1,16}-[0-9]{1,16}(?:\.[0-9]{1,16}-[0-9]{1,16})*")
_NOWHERE: Final = "0-0"  # no topic has the id 0


class FollowedRecordOut(RecordOut, kw_only=True):
    """A record of a stream of many topics."""

    topic: str


@dataclass(frozen=True, slots=True)
class ManyRequest:
    """`place`: next offset by topic id, of those that are known; the others begin at `latest` or
    at their log start. `most`: so many records, then the stream ends; None: it does not."""

    patterns: Patterns
    place: Mapping[int, int]
    latest: bool
    most: int | None
    shape: ValueShape


def patterns_of(text: str) -> Patterns:
    """Of `orders.*,iot.**`. Raises BadParameterError."""
    patterns = text.split(",")
    if len(patterns) > limits.PATTERNS_PER_FOLLOWER_MAX:
        raise BadParameterError(f"At most {limits.PATTERNS_PER_FOLLOWER_MAX} patterns are taken.")
    return Patterns(map(check_pattern, patterns))


def many_request(call: Call) -> ManyRequest:
    """Raises BadParameterError."""
    if "topics" not in call.query:
        raise BadParameterError("topics is missing: patterns with commas, as in orders.*,iot.**.")
    start = parameters.choice(call.query.get("offset", "earliest"), "offset", STARTS)
    most = call.query.get("max_records")
    last = call.headers.get(b"last-event-id", b"").decode("latin-1")
    cursor = last or call.query.get("cursor", "")
    return ManyRequest(
        patterns_of(call.query["topics"]),
        place_of(cursor),
        start == "latest" and not cursor,
        None
        if most is None
        else parameters.integer(most, "max_records", smallest=1, largest=limits.OFFSET_MAX),
        value_shape(call.query),
    )


def place_of(cursor: str) -> dict[int, int]:
    """Raises BadParameterError for what is no cursor of ours."""
    if not cursor:
        return {}
    if not _CURSOR.fullmatch(cursor):
        raise BadParameterError("The cursor is not the id of an event of such a stream.")
    pairs = (part.split("-") for part in cursor.split("."))
    return {int(topic_id): int(offset) for topic_id, offset in pairs}


def cursor_of(place: Mapping[int, int]) -> str:
    return ".".join(f"{topic_id}-{offset}" for topic_id, offset in place.items()) or _NOWHERE


class LiveOfMany(LiveAnswer[FollowerOfMany]):
    """The stream. Each topic with something new has its turn for one part."""

    def __init__(self, broker: Broker, call: Call) -> None:
        """Raises BadParameterError, ForbiddenError."""
        super().__init__(broker, call)
        self._wanted = many_request(call)
        self._left = self._wanted.most
        self._place: dict[int, int] = {}
        self._behind: dict[int, Topic] = {}  # may have something new; the first one is next
        broker.authorize(call.key, "consume")

    def _may(self, topic: str) -> bool:
        """Whether the stream is to hold the topic, by its patterns, its API key and its ticket."""
        ticket = self._call.ticket
        return (
            self._wanted.patterns.cover(topic)
            and (ticket is None or ticket.topics.cover(topic))
            and self._broker.may(self._key, "consume", topic)
        )

    @property
    def _begins(self) -> Headers:
        return []

    def _follow(self) -> FollowerOfMany:
        """Raises OffsetExpiredError, OffsetOutOfRangeError, too."""
        follower = self._broker.follow_many(self._may)
        try:
            for topic in follower.topics.values():
                self._place[topic.topic_id] = self._start(topic)
        except BaseException:
            follower.__exit__(None, None, None)
            raise
        return follower

    def _start(self, topic: Topic) -> int:
        offset = self._wanted.place.get(topic.topic_id)
        if offset is None:
            return topic.log_end_offset if self._wanted.latest else topic.log_start_offset
        if offset < topic.log_start_offset:
            raise OffsetExpiredError(
                f"Offset {offset} is gone; the log of {topic.name!r} starts at "
                f"{topic.log_start_offset}.",
                topic=topic.name,
                log_start_offset=topic.log_start_offset,
            )
        if offset > topic.log_end_offset:
            raise OffsetOutOfRangeError(
                f"Offset {offset} is beyond the log end {topic.log_end_offset} of {topic.name!r}.",
                log_end_offset=topic.log_end_offset,
            )
        return offset

    def _opening(self, follower: FollowerOfMany) -> bytes:  # noqa: ARG002
        # An id without data: who loses the connection before the first event comes back to here.
        return RETRY + b"id: %b\n\n" % cursor_of(self._place).encode()

    def _authorize(self, follower: FollowerOfMany, key: ApiKeyView) -> None:
        """Topics that it may not read any more leave the stream, others come; their places stay, so
        that a grant that is given back goes on where it was."""
        self._broker.authorize(key, "consume")
        for topic in [t for t in follower.topics.values() if not self._may(t.name)]:
            follower.drop(topic)
            self._behind.pop(topic.topic_id, None)
        self._broker.meet_all(follower)

    def _is_over(self) -> bool:
        return self._left == 0

    async def _next_part(self, follower: FollowerOfMany) -> bytes | None:
        self._behind |= follower.changed
        follower.changed.clear()
        check_count(follower.topics)
        check_count(self._place)
        while self._behind:
            topic_id, topic = next(iter(self._behind.items()))
            del self._behind[topic_id]
            if topic.deleted:
                self._forget(follower, topic)
                continue
            offset = self._place.setdefault(topic_id, topic.log_start_offset)
            if offset >= topic.log_end_offset:
                continue
            part = await self._part(topic, offset)
            if part is None:
                self._forget(follower, topic)
                continue
            if part.next_offset < topic.log_end_offset:
                self._behind[topic_id] = topic  # behind all others
            content = self._with_ids(topic_id, part)
            if self._left is not None:
                self._left -= part.count
            if content:
                return content
        return None

    def _forget(self, follower: FollowerOfMany, topic: Topic) -> None:
        follower.drop(topic)
        self._place.pop(topic.topic_id, None)

    async def _part(self, topic: Topic, offset: int) -> Part | None:
        """Made once for all who follow the topic from there, in streams of many; None if it is
        deleted while it is read."""
        # Ids take room, too: the more topics, the fewer records at a time. A power of two, so that
        # followers of about as many topics share their parts.
        room = max(1, limits.FOLLOWER_CURSORS_BYTES // len(cursor_of(self._place)))
        most = min(1 << (room.bit_length() - 1), limits.FOLLOWER_PART_RECORDS)
        most = most if self._left is None else min(most, self._left)
        recent = self._broker.followers.recent
        place = (topic.topic_id, f"{self._wanted.shape} {most}", offset)
        found = recent.get(place)
        if found is not None:
            return found
        wanted = ReadRequest(From(offset=offset), None, most, limits.FOLLOWER_PART_BYTES)
        try:
            result = self._broker.read_at_once(topic.name, wanted)
            if result is None:
                result = await self._broker.read(topic.name, wanted)
        except TopicNotFoundError:
            return None
        if result.topic_id != topic.topic_id:  # there is one of that name again
            return None
        found = recent.get(place)
        if found is None:
            found = self._encoded(result)
            if result.next_offset == result.log_end_offset:  # else nobody else may be there
                recent.put(place, found)
        return found

    def _encoded(self, result: ReadResult) -> Part:
        made = list(records(result, self._wanted.shape))
        self._broker.counters.live_encoded += len(made)
        encoded = map(msgspec.json.encode, made)
        topic = b'{"topic":"%b",' % result.topic.encode()  # names need no escapes
        lines = b"\n".join(topic + line[1:] for line in encoded)
        offsets = [record.offset for record in made]
        return Part(lines, len(made), result.next_offset, offsets)

    def _with_ids(self, topic_id: int, part: Part) -> bytes:
        """The part as events, whose ids are the places behind each; the stream moves behind it."""
        self._place[topic_id] = part.next_offset
        if not part.count:
            return b""
        at = list(self._place).index(topic_id)
        texts = [f"{of}-{offset}" for of, offset in self._place.items()]
        before = ".".join([*texts[:at], f"{topic_id}-"]).encode()
        after = "".join("." + text for text in texts[at + 1 :]).encode()
        lines = zip(part.offsets, part.encoded.split(b"\n"), strict=True)
        return b"".join(
            b"id: %b%d%b\ndata: %b\n\n" % (before, offset + 1, after, line)
            for offset, line in lines
        )


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/v1/records")
    async def follow_many(request: AnyRequest) -> ASGIApp:
        call = enter_to_read(request, broker, QUERY)
        answer_type(call, FORMATS)
        return LiveOfMany(broker, call)

    return [follow_many]

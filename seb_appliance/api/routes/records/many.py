"""`GET /v1/records?topics=…` as `application/json`: one read over many topics.

The cursor is the same place as in a live stream of them (live_many.py); its order is the
order in which topics have their turn, so that one with much to read does not keep the others
waiting from page to page.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import JSON, Answer, json_line
from seb_appliance.api.encoding.record_encoding import (
    PartEncoder,
    RecordOut,
    ValueShape,
    record_parts,
)
from seb_appliance.api.routes.records.reading import NO_STORE, VARY, encoded, value_shape
from seb_appliance.api.server.auth import Call
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.read.reads import bytes_of
from seb_appliance.broker.read.waiting import FollowerOfMany
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from seb_appliance.errors import (
    BadParameterError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
)

# Places in many topics: the next offset in each, as a cursor, and where a read of them begins.
#
# A topic that a place does not name is read from its log start: it was made later, or may only now
# be read.


STARTS: Final = ("earliest", "latest")
_CURSOR: Final = re.compile(r"[0-9]{1,16}-[0-9]{1,16}(?:\.[0-9]{1,16}-[0-9]{1,16})*")
_NOWHERE: Final = "0-0"  # no topic has the id 0


class FollowedRecordOut(RecordOut, kw_only=True):
    """A record with its topic, in a read of many topics."""

    topic: str


@dataclass(frozen=True, slots=True)
class ManyRequest:
    """`place`: the next offset by topic id; topics that are not in it begin at `latest` or at their
    log start. `most`: the stream ends after this number of records; None: it does not."""

    patterns: Patterns
    place: Mapping[int, int]
    latest: bool
    most: int | None
    shape: ValueShape


def patterns_of(text: str) -> Patterns:
    """Of `orders.*,iot.**`. Raises BadParameterError."""
    patterns = text.split(",")
    if len(patterns) > limits.PATTERNS_PER_FOLLOWER_MAX:
        raise BadParameterError(f"At most {limits.PATTERNS_PER_FOLLOWER_MAX} patterns are allowed.")
    return Patterns(map(check_pattern, patterns))


def many_request(call: Call) -> ManyRequest:
    """Raises BadParameterError."""
    if "topics" not in call.query:
        raise BadParameterError(
            "The parameter topics is missing: send patterns separated by commas, such as "
            "orders.*,iot.**."
        )
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
    """Raises BadParameterError for a text that is not a cursor."""
    if not cursor:
        return {}
    if not _CURSOR.fullmatch(cursor):
        raise BadParameterError(
            "The cursor is invalid: send the cursor of an earlier answer, or the id of an event."
        )
    pairs = (part.split("-") for part in cursor.split("."))
    return {int(topic_id): int(offset) for topic_id, offset in pairs}


def cursor_of(place: Mapping[int, int]) -> str:
    return ".".join(f"{topic_id}-{offset}" for topic_id, offset in place.items()) or _NOWHERE


def start_of(topic: Topic, place: Mapping[int, int], *, latest: bool) -> int:
    """Where a read of the topic begins. Raises OffsetExpiredError, OffsetOutOfRangeError."""
    offset = place.get(topic.topic_id)
    if offset is None:
        return topic.log_end_offset if latest else topic.log_start_offset
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


# A slice keeps its whole batch in memory until the page is made: a small record of a large batch
# each, of hundreds of topics, would be gigabytes.
HELD_BYTES_MAX: Final = limits.FETCH_BYTES_MAX
PAGE_QUERY: Final = frozenset({"max_bytes", "wait", "group"})
_RECORDS: Final = b'{"records":[],'


class ToCommit(msgspec.Struct):
    """The body of the commit (`PUT /v1/groups/{group}/offsets`) to send after you have processed
    the records. `expected`: the group's offsets at the time of the read, null for none."""

    offsets: dict[str, int]
    expected: dict[str, int | None]
    topic_ids: dict[str, int]


class ManyRecordsOut(msgspec.Struct):
    """One page of records of many topics. `commit` is null without `group`, and if there is nothing
    to commit."""

    records: list[FollowedRecordOut]
    cursor: str
    commit: ToCommit | None


class PageOfMany:
    """One such read. `wait_ms`: how long it may wait for a first record."""

    def __init__(self, broker: Broker, call: Call, wanted: ManyRequest) -> None:
        """Raises BadParameterError, ForbiddenError."""
        query = call.query
        self._broker = broker
        self._call = call
        self._wanted = wanted
        self._left = parameters.integer(
            query.get("max_records", str(limits.FETCH_RECORDS_DEFAULT)),
            "max_records",
            smallest=1,
            largest=limits.FETCH_RECORDS_MAX,
        )
        self._left_bytes = parameters.size_bytes(
            query.get("max_bytes", str(limits.FETCH_BYTES_DEFAULT)),
            "max_bytes",
            largest=limits.FETCH_BYTES_MAX,
        )
        self.wait_ms = parameters.duration_ms(
            query.get("wait", "0"), "wait", largest=limits.WAIT_MS_MAX
        )
        self._group = query.get("group")
        self._held_bytes = 0
        self._place: dict[int, int] = {}
        self._results: list[ReadResult] = []
        self._expected: dict[int, int | None] = {}  # where the group stood when we began
        self._commit = ToCommit({}, {}, {})
        broker.authorize(call.key, "consume", None, self._group)

    async def read(self) -> None:
        """Raises OffsetExpiredError, OffsetOutOfRangeError, and what `Broker.read` raises."""
        with await self._broker.follow_many(self._may, self._call.owner) as follower:
            self._begin(follower)
            await self._read(follower)
            if not self._results and self.wait_ms:
                await self._wait(follower)

    async def answer(self) -> Answer:
        """What was read."""
        frame = ManyRecordsOut([], cursor_of(self._place), self._commit)
        if self._group is None or not self._results:
            frame.commit = None
        headers = [(b"content-type", JSON), NO_STORE, VARY]
        parts = _parts(frame, self._results, self._wanted.shape)
        return await encoded(self._broker, self._call, headers, parts)

    def _may(self, topic: str) -> bool:
        ticket = self._call.ticket
        return (
            self._wanted.patterns.cover(topic)
            and (ticket is None or ticket.topics.cover(topic))
            and self._broker.may(self._call.key, "consume", topic, self._group)
        )

    def _begin(self, follower: FollowerOfMany) -> None:
        """The place, in the order of turns: as the cursor has it, then those that it lacks."""
        turns = [follower.topics[i] for i in self._wanted.place if i in follower.topics]
        turns += [t for i, t in follower.topics.items() if i not in self._wanted.place]
        for topic in turns:
            self._place[topic.topic_id] = self._start(topic)

    def _start(self, topic: Topic) -> int:
        committed = self._expected[topic.topic_id] = self._committed(topic)
        place: Mapping[int, int] = self._wanted.place
        if topic.topic_id not in place and committed is not None:
            place = {topic.topic_id: committed}
        return start_of(topic, place, latest=self._wanted.latest)

    def _committed(self, topic: Topic) -> int | None:
        if self._group is None:
            return None
        return self._broker.groups.committed_offset(self._group, topic.topic_id)

    async def _wait(self, follower: FollowerOfMany) -> None:
        """Until there is a record, the time is over, or the appliance stops."""
        deadline_s = asyncio.get_running_loop().time() + self.wait_ms / 1000
        while not (self._results or follower.stopping):
            if not follower.changed:
                try:
                    async with asyncio.timeout_at(deadline_s):
                        await follower.wait()
                except TimeoutError:
                    return
            for topic in follower.changed.values():
                self._place.setdefault(topic.topic_id, topic.log_start_offset)
            await self._read(follower)

    async def _read(self, follower: FollowerOfMany) -> None:
        """Topics have their turns until the page is full; each that had one is the last then."""
        follower.changed.clear()
        for topic_id, offset in list(self._place.items()):
            topic = follower.topics.get(topic_id)
            if topic is None or topic.deleted:
                del self._place[topic_id]
            elif offset < topic.log_end_offset and self._has_room:
                await self._turn(topic, offset)

    @property
    def _has_room(self) -> bool:
        return self._left > 0 and self._left_bytes > 0 and self._held_bytes < HELD_BYTES_MAX

    async def _turn(self, topic: Topic, offset: int) -> None:
        del self._place[topic.topic_id]
        wanted = ReadRequest(From(offset=offset), None, self._left, self._left_bytes)
        try:
            result = await self._broker.read(topic.name, wanted)
        except TopicNotFoundError:
            return
        if result.topic_id != topic.topic_id:  # there is one of that name again
            return
        self._place[topic.topic_id] = result.next_offset
        self._results.append(result)
        for piece in result.slices:
            self._left -= piece.end - piece.begin
            self._left_bytes -= bytes_of(piece)
            self._held_bytes += piece.batch.header.inflated_bytes
        self._commit.offsets[topic.name] = result.next_offset
        self._commit.expected[topic.name] = self._expected.get(topic.topic_id)
        self._commit.topic_ids[topic.name] = topic.topic_id


def _parts(frame: ManyRecordsOut, results: list[ReadResult], shape: ValueShape) -> Iterator[bytes]:
    """`frame` as JSON, with the records in the place of none."""
    encoder, before = PartEncoder(), _RECORDS[:-2]
    for result in results:
        topic = b'{"topic":"%b",' % result.topic.encode()  # names need no escapes
        for part in record_parts(result, shape):
            lines = encoder.encode_lines(part)
            # No line break stands inside of a record.
            inner = lines[1:-1].replace(b"\n{", b"," + topic)
            yield from encoder.pieces(before + topic + inner)
            before = b","
    after = json_line(frame).removeprefix(_RECORDS)
    yield (b"" if before == b"," else before) + b"]," + after

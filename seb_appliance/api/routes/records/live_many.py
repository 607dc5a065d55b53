"""`GET /v1/records?topics=…` as `text/event-stream`: many topics in one stream.

The stream's place is the next offset in each of its topics. It is the id of each event, so that
Last-Event-ID goes on in all of them behind the last event that was received.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.answers import JSON, SSE, Headers
from seb_appliance.api.encoding.record_encoding import PartEncoder, RecordOut, records
from seb_appliance.api.openapi.parameters import VALUES, format_of, header, query
from seb_appliance.api.openapi.shared import RECORD
from seb_appliance.api.routes.records.live import RETRY, LiveAnswer
from seb_appliance.api.routes.records.many import (
    PAGE_QUERY,
    STARTS,
    ManyRecordsOut,
    PageOfMany,
    cursor_of,
    many_request,
    start_of,
)
from seb_appliance.api.routes.records.reading import answer_type, unless_gone
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    route,
)
from seb_appliance.api.server.auth import Call
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.read.waiting import FollowerOfMany, Part, check_count
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import ApiKeyView, From, ReadRequest, ReadResult
from seb_appliance.errors import (
    BadNameError,
    BadParameterError,
    FollowerTooSlowError,
    NotAcceptableError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    ShuttingDownError,
    TopicNotFoundError,
)
from seb_appliance.tasks import in_slices

FORMATS: Final = {"sse": SSE.decode(), "json": JSON.decode()}


class LiveOfMany(LiveAnswer[FollowerOfMany]):
    """The stream. Each topic with something new has its turn for one part."""

    def __init__(self, broker: Broker, call: Call) -> None:
        """Raises BadParameterError, ForbiddenError."""
        super().__init__(broker, call)
        for name in PAGE_QUERY & call.query.keys():
            raise BadParameterError(f"{name} cannot be used with a live stream; use format=json.")
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

    async def _follow(self) -> FollowerOfMany:
        """Raises OffsetExpiredError, OffsetOutOfRangeError, too."""
        follower = await self._broker.follow_many(self._may, self._call.owner)
        try:
            for topic in follower.topics.values():
                self._place[topic.topic_id] = start_of(
                    topic, self._wanted.place, latest=self._wanted.latest
                )
        except BaseException:
            follower.__exit__(None, None, None)
            raise
        return follower

    def _opening(self, follower: FollowerOfMany) -> bytes:  # noqa: ARG002
        # An id without data: who loses the connection before the first event comes back to here.
        return RETRY + b"id: %b\n\n" % cursor_of(self._place).encode()

    async def _authorize(self, follower: FollowerOfMany, key: ApiKeyView) -> None:
        """Topics that the key may no longer read leave the stream, and new ones join. The positions
        of topics that left are kept, so that a restored grant continues where it stopped."""
        self._broker.authorize(key, "consume")
        for topic in [t for t in follower.topics.values() if not self._may(t.name)]:
            follower.drop(topic)
            self._behind.pop(topic.topic_id, None)
        await self._broker.meet_all(follower)

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
            result = self._broker.read_nowait(topic.name, wanted)
            if result is None:
                result = await self._broker.read(topic.name, wanted)
        except TopicNotFoundError:
            return None
        if result.topic_id != topic.topic_id:  # there is one of that name again
            return None
        if result.next_offset < result.log_end_offset:  # nobody else may be there
            return await self._encoded(result)
        return await recent.made_once(place, lambda: self._encoded(result))

    async def _encoded(self, result: ReadResult) -> Part:
        made = list(records(result, self._wanted.shape))
        self._broker.counters.live_encoded += len(made)
        lines = [piece async for piece in in_slices(_lines(result.topic, made))]
        offsets = [record.offset for record in made]
        return Part(b"".join(lines), len(made), result.next_offset, offsets)

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


def _lines(topic: str, made: Iterable[RecordOut]) -> Iterator[bytes]:
    """To be joined: the records, each with its topic, and line breaks between them."""
    opening, between = b'{"topic":"%b",' % topic.encode(), b""  # names need no escapes
    encoder = PartEncoder()
    for record in made:
        yield from encoder.pieces(between + opening + encoder.encode(record)[1:])
        between = b"\n"


_DATA: Final = msgspec.json.encode({"topic": "orders.eu", **RECORD}).decode()
_LIVE: Final = Content(
    schema={"type": "string", "description": "One event a record; its data: FollowedRecordOut."},
    example=f"id: 3-18.7-1044\ndata: {_DATA}\n\n",
)
_PAGE: Final = Content(
    struct=ManyRecordsOut,
    example={
        "records": [{"topic": "orders.eu", **RECORD}],
        "cursor": "3-18.7-1044",
        "commit": {
            "offsets": {"orders.eu": 1044},
            "expected": {"orders.eu": 1000},
            "topic_ids": {"orders.eu": 7},
        },
    },
)


@route(
    "GET",
    "/v1/records",
    "readMany",
    tag="Records",
    summary="Read many topics at once, or follow them in one live stream",
    description="As JSON, the answer is one page: records of the topics in turn, and a `cursor` "
    "to continue with. `wait` makes it a long poll on all topics. With `group`, the read begins "
    "at the group's committed offsets, and `commit` is the body of the commit to send after you "
    "have processed the records.\n\nAs a live stream, each event is a record with its topic. "
    "The `id` is the position of the stream in all of its topics; with Last-Event-ID (or "
    "`cursor`) a new stream continues exactly after it. Records of one topic are in order; "
    "there is no order between topics. Topics that are created later join with their first "
    "record, and so do topics that the API key is allowed to read later. Topics that it may not "
    f"read are left out. At most {limits.FOLLOWED_TOPICS_MAX} topics; ids are shorter with fewer "
    f"topics. A follower that receives nothing for {limits.FOLLOWER_STALLED_S_MAX} s gets an "
    "error event and is disconnected.",
    parameters=[
        query("topics", "Patterns of topic names, separated by commas.", "orders.*,iot.**"),
        query(
            "offset",
            "Where to begin if there is no cursor.",
            type="string",
            enum=list(STARTS),
            default="earliest",
        ),
        query(
            "cursor",
            "The `cursor` of a page, or the id of an event. Last-Event-ID takes precedence.",
            "3-18.7-1044",
        ),
        header("Last-Event-ID", "The id of the last event that was received."),
        query(
            "max_records",
            "Largest number of records: of a page (default 1,000), or of the whole stream.",
            type="integer",
            minimum=1,
        ),
        query(
            "max_bytes",
            "Approximate size of a page; default 1MiB. It has at least one record if there is one.",
            "64KiB",
        ),
        query("wait", "For a page: how long to wait for the first record.", "30s"),
        query("group", "For a page: begin at the committed offsets of this group.", "lake"),
        query("ticket", "A ticket from POST /v1/tickets, instead of an API key."),
        VALUES,
        format_of(FORMATS),
    ],
    replies={
        200: Reply(
            description="The page, or the stream",
            content={"text/event-stream": _LIVE, "application/json": _PAGE},
        )
    },
    errors=(
        BadNameError,
        NotAcceptableError,
        OffsetExpiredError,
        OffsetOutOfRangeError,
        FollowerTooSlowError,
        ShuttingDownError,
    ),
)
async def read_many(ctx: RequestContext) -> object:
    call = ctx.call.without_defaults()
    if answer_type(call, FORMATS) == FORMATS["sse"]:
        return LiveOfMany(ctx.broker, call)
    page = PageOfMany(ctx.broker, call, many_request(call))
    await unless_gone(page.read(), ctx.broker, ctx.request, waits=page.wait_ms > 0)
    return await page.answer()


ROUTES: Final = [read_many]

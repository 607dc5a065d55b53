"""Subscriptions of the Durable Streams protocol: they wake a worker when streams have new records.

The cursors of a subscription are the committed offsets of the group `ds.<name>`. Wakes and leases
are in memory: after a restart a subscription that is behind wakes its worker again, and what an
earlier wake was given is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal
from urllib.parse import quote

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.read.waiting import FollowerOfMany
from seb_appliance.broker.shares import OPERATOR, Shares
from seb_appliance.broker.streams.admission import StreamAppend
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.errors import BadRequestError, SebError, TopicNotFoundError
from seb_appliance.protocols.durable_streams import limits as stream_limits
from seb_appliance.protocols.durable_streams.wire import PREFIX, offset_token, path_of, topic_of
from seb_appliance.protocols.subscriptions.sending import DeliveryError

KIND: Final = "stream_subscription"  # of its documents
_JSON: Final = "application/json"
_JITTER: Final = 0.2  # of the pause between two deliveries that fail


class Webhook(msgspec.Struct, frozen=True):
    url: Annotated[str, msgspec.Meta(min_length=1, max_length=limits.PUSH_URL_LENGTH_MAX)]


_Paths = Annotated[tuple[str, ...], msgspec.Meta(max_length=limits.FOLLOWED_TOPICS_MAX)]
_Lease = Annotated[
    int,
    msgspec.Meta(ge=stream_limits.LEASE_MS_MIN, le=stream_limits.LEASE_MS_MAX),
]


class StreamSubscriptionIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client asks for, as the protocol has it: unknown members are ignored. Paths are
    relative to `/v1/stream/`."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: _Paths = ()
    webhook: Webhook | None = None
    wake_stream: str | None = None
    lease_ttl_ms: _Lease = 30_000
    description: (
        Annotated[str, msgspec.Meta(max_length=limits.API_KEY_DESCRIPTION_LENGTH_MAX)] | None
    ) = None


class StoredSubscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`streams`: the topics that are linked one by one now. `base`: the URL under which the client
    reaches `/v1/stream/`. `owner`: whose shares it takes."""

    settings: StreamSubscriptionIn
    streams: tuple[str, ...]
    base: str
    created_us: int
    owner: str = OPERATOR


def topic_at(path: str) -> str:
    """The topic of a path that is relative to `/v1/stream/`. Raises BadNameError."""
    return topic_of(PREFIX + quote(path.strip("/"), safe="/").encode())


def topic_patterns(settings: StreamSubscriptionIn) -> list[str]:
    """The pattern over topics that `pattern` stands for. Raises BadNameError, BadParameterError."""
    if settings.pattern is None:
        return []
    parts = settings.pattern.strip("/").split("/")
    words = [part if part in ("*", "**") else topic_at(part) for part in parts]
    return [check_pattern(".".join(words))]


def patterns_of(settings: StreamSubscriptionIn) -> Patterns:
    return Patterns(topic_patterns(settings))


def relative_path(topic: str) -> str:
    path = path_of(topic)
    return topic if path is None else path.removeprefix(PREFIX.decode())


class StreamLinkOut(msgspec.Struct):
    """`acked_offset`: where the worker goes on."""

    path: str
    link_type: str
    acked_offset: str


class PendingStreamOut(StreamLinkOut):
    tail_offset: str
    has_pending: bool


def group_of(name: str) -> str:
    return f"ds.{name}"


@dataclass(frozen=True, slots=True)
class Links:
    """Which topics a subscription links."""

    streams: frozenset[str]
    patterns: Patterns
    wake_topic: str | None  # is never linked: each wake would be another one

    @classmethod
    def of(cls, stored: StoredSubscription) -> Links:
        """Raises BadNameError, BadParameterError."""
        settings = stored.settings
        wake_topic = None if settings.wake_stream is None else topic_at(settings.wake_stream)
        return cls(frozenset(stored.streams), patterns_of(settings), wake_topic)

    def cover(self, topic: str) -> bool:
        linked = topic in self.streams or self.patterns.cover(topic)
        return linked and topic != self.wake_topic and path_of(topic) is not None


@dataclass(frozen=True, slots=True)
class Link:
    """A stream of a subscription. `acked`: the next offset to be worked on; `end`: of the log.
    `topic_id` 0: there is no such topic yet."""

    topic: str
    topic_id: int
    is_explicit: bool
    acked: int
    end: int


def link_out(link: Link) -> StreamLinkOut:
    kind = "explicit" if link.is_explicit else "glob"
    return StreamLinkOut(relative_path(link.topic), kind, offset_token(link.acked).decode())


def pending_out(link: Link) -> PendingStreamOut:
    told = msgspec.structs.asdict(link_out(link))
    return PendingStreamOut(**told, tail_offset=offset_token(link.end).decode(), has_pending=True)


@dataclass(slots=True)
class Wake:
    """`links`: what it was told. `until_s`: when its lease ends, by the monotonic clock; None
    before a worker claims it. `is_let_in`: whether the API key of its worker still may. `event`:
    where it is in the wake stream, as topic id and offset."""

    wake_id: str
    generation: int
    links: list[Link]
    holder: str = ""
    until_s: float | None = None
    is_let_in: Callable[[], bool] = lambda: True
    event: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """`deliver` posts a wake to a webhook; it returns whether the worker is done already, and
    raises SebError or DeliveryError if it did not get it. `random`: a number from 0 to 1.
    `counts`: wakes, `told` and `failed`. `topics`: that all subscriptions follow."""

    broker: Broker
    deliver: Callable[[Subscription, Wake], Awaitable[bool]]
    next_generation: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    random: Callable[[], float]
    counts: Counter[str]
    topics: Shares


class Subscription:
    """One in use. `run` wakes its worker; the requests of the worker come in between. `wake`: the
    one of now. `failures`: of wakes, since the last one that was told; `failure`: the last one."""

    def __init__(self, name: str, stored: StoredSubscription, tools: Tools) -> None:
        self.name = name
        self.stored = stored
        self.wake: Wake | None = None
        self.failures = 0
        self.failure = ""
        self._tools = tools
        self._links = Links.of(stored)
        self._closed = False
        self._not_before_s = 0.0
        self._behind: dict[int, Topic] = {}  # may have something new
        self._follower: FollowerOfMany | None = None

    def close(self) -> None:
        """It is deleted: tokens of its wake are worth nothing."""
        self._closed, self.wake = True, None

    async def change(self, stored: StoredSubscription) -> None:
        """Other topics are linked one by one."""
        self.stored, self._links = stored, Links.of(stored)
        if self._follower is None:
            return
        for topic in list(self._follower.topics.values()):
            if not self._links.cover(topic.name):
                self._follower.drop(topic)
                self._behind.pop(topic.topic_id, None)
        await self._tools.broker.meet_all(self._follower, is_limited=False)

    def links(self) -> list[Link]:
        """Of all its streams, also of those that do not exist yet; by topic."""
        found = {name: Link(name, 0, True, 0, 0) for name in self.stored.streams}
        followed = {} if self._follower is None else self._follower.topics
        found |= {topic.name: self._link(topic) for topic in followed.values() if not topic.deleted}
        return [link for _, link in sorted(found.items())]

    def links_in(self, wake: Wake) -> dict[str, Link]:
        """`links`, by topic. Those that the wake named, as its worker was told of them: they may
        have been deleted and made again since."""
        named = {link.topic: link for link in wake.links}
        return {link.topic: named.get(link.topic, link) for link in self.links()}

    def look_at_all(self) -> list[Link]:
        """`pending`, also where an operator has reset an offset."""
        if self._follower is not None:
            self._behind |= self._follower.topics
        return self.pending()

    def pending(self) -> list[Link]:
        """The streams with something new."""
        found = []
        for topic_id, topic in list(self._behind.items()):
            link = self._link(topic)
            if topic.deleted or link.acked >= link.end:
                del self._behind[topic_id]
                if topic.deleted and self._follower is not None:
                    self._follower.drop(topic)
            else:
                found.append(link)
        return found

    def begin(self, pending: list[Link]) -> Wake:
        """A new wake, of these streams."""
        wake_id = f"w_{self._tools.random_bytes(9).hex()}"
        self.wake = Wake(wake_id, self._tools.next_generation(), pending)
        return self.wake

    def lease(self, wake: Wake, holder: str) -> None:
        """From now on. Nothing is written, so the appliance looks whether it was taken over."""
        self._tools.broker.look_for_newer_writer()
        ttl_s = self.stored.settings.lease_ttl_ms / 1_000
        wake.holder, wake.until_s = holder, self._now_s() + ttl_s
        self._look()

    def is_leased(self) -> bool:
        """Whether a worker holds it. A lease that is over ends its wake, as does the end of the
        worker's API key."""
        wake = self.wake
        if wake is None or wake.until_s is None:
            return False
        if self._now_s() < wake.until_s and wake.is_let_in():
            return True
        self.wake = None
        self._look()
        return False

    def _is_told(self) -> bool:
        """Whether workers can still hear of the wake, or one has: its event may have been deleted
        or trimmed."""
        wake, topic = self.wake, self._links.wake_topic
        if wake is None or wake.until_s is not None or wake.event is None or topic is None:
            return wake is not None
        try:
            found = self._tools.broker.streams.get(topic)
        except TopicNotFoundError:
            return False
        topic_id, offset = wake.event
        return found.topic_id == topic_id and found.log_start_offset <= offset

    def release(self) -> bool:
        """Whether there is something new, so that another wake follows."""
        self.wake = None
        self._look()
        return bool(self.pending())

    async def commit(self, links: Iterable[Link]) -> None:
        """Up to their ends. Raises TopicNotFoundError, OffsetConflictError for a topic that was
        made again, CommitBackwardError, CommitBeyondEndError, and what an append raises."""
        offsets = {link.topic: link.end for link in links}
        ids = {link.topic: link.topic_id for link in links}
        commit = Commit(group_of(self.name), offsets, topic_ids=ids, heeds_lease=False)
        broker, wake = self._tools.broker, self.wake
        patience_ms = None  # its worker should know before its lease ends
        if wake is not None and wake.until_s is not None:
            patience_ms = max(0, round((wake.until_s - self._now_s()) * 1000))
        held = broker.pending.reserve(OPERATOR, 0)
        await broker.groups.commit(commit, held, patience_ms=patience_ms)

    # --- waking ---

    async def run(self) -> None:
        """Until it is deleted, or the appliance stops."""
        while not await self._follow():
            self._follower = None
            self._behind.clear()
            self.failure = (
                "There is no room for all topics that it matches. Delete subscriptions, or let "
                "them match fewer topics."
            )
            await self._tools.broker.clock.sleep(stream_limits.WAKE_PAUSE_S_MAX)

    async def _follow(self) -> bool:
        """False: there is no room for one more topic."""
        wants = lambda topic: self._links.cover(topic)  # noqa: E731 - as they are then
        owner, follow_many = self.stored.owner, self._tools.broker.follow_many
        # Others may have made topics since, and there may be more of them than it began with.
        room = self._tools.topics
        with await follow_many(wants, owner, is_limited=False, room=room) as follower:
            self._follower, self.failure = follower, ""
            while not follower.stopping:
                if follower.lacks_room:
                    return False
                self._behind |= follower.changed
                follower.changed.clear()
                self.is_leased()
                if not self._is_told():
                    self.wake = None
                if self.wake is None and self._now_s() >= self._not_before_s:
                    pending = self.pending()
                    if pending:
                        await self._wake(self.begin(pending))
                        continue
                await follower.wait(self._left_s())
        return True

    async def _wake(self, wake: Wake) -> None:
        try:
            if self.stored.settings.type == "pull-wake":
                await self._tell(wake)
            else:
                self.lease(wake, "webhook")
                done = await self._tools.deliver(self, wake)
                if done and self.wake is wake:
                    await self.commit(wake.links)
                    self.wake = None
        except (SebError, DeliveryError) as error:
            self._failed(wake, str(error))
        else:
            self._tools.counts["told"] += 1
            self.failures, self.failure = 0, ""

    def _failed(self, wake: Wake, why: str) -> None:
        self._tools.counts["failed"] += 1
        self.failures, self.failure = self.failures + 1, why
        if self.wake is wake:
            self.wake = None
        pause_s = stream_limits.WAKE_PAUSE_S_MIN * 2 ** min(self.failures - 1, 10)
        jitter = 1 + _JITTER * (2 * self._tools.random() - 1)
        self._not_before_s = self._now_s() + jitter * min(pause_s, stream_limits.WAKE_PAUSE_S_MAX)

    async def _tell(self, wake: Wake) -> None:
        """Append to the wake stream. Raises what an append raises."""
        broker, topic = self._tools.broker, self._links.wake_topic
        assert topic is not None, self.name
        told = {
            "type": "wake",
            "subscription_id": self.name,
            "stream": relative_path(wake.links[0].topic),
            "generation": wake.generation,
            "ts": broker.clock.wall_us() // 1_000,
        }
        append = StreamAppend([msgspec.json.encode(told)], _JSON)
        if not broker.streams.takes(topic, _JSON):
            raise BadRequestError(f"{relative_path(topic)!r} is no open stream of JSON.")
        reservation = broker.pending.reserve(OPERATOR, len(append.values[0]))
        told_at = await broker.streams.append(topic, append, reservation, THE_APPLIANCE)
        wake.event = broker.streams.get(topic).topic_id, told_at.next_offset - 1

    def _link(self, topic: Topic) -> Link:
        committed = self._tools.broker.groups.committed_offset(group_of(self.name), topic.topic_id)
        is_explicit = topic.name in self.stored.streams
        return Link(topic.name, topic.topic_id, is_explicit, committed or 0, topic.log_end_offset)

    def _left_s(self) -> float | None:
        """Until there is something to do, even if no stream changes."""
        if self.wake is not None:
            until_s = self.wake.until_s
            if until_s is None:  # its event may get lost
                return stream_limits.WAKE_PAUSE_S_MAX
        else:
            until_s = self._not_before_s if self.failures else None
        if until_s is None:
            return None
        return max(0.0, until_s - self._now_s())

    def _look(self) -> None:
        if self._follower is not None:
            self._follower.wake()

    def _now_s(self) -> float:
        return self._tools.broker.clock.monotonic_s()


class Tokens:
    """What a worker shows instead of an API key: it names one wake of one subscription."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, name: str, wake: Wake) -> str:
        claim = f"{wake.generation}.{wake.wake_id}"
        return f"{claim}.{self._mac(name, claim)}"

    def wake_of(self, name: str, token: str) -> tuple[int, str] | None:
        """The generation and id of the wake; None for a token that is not ours."""
        claim, _, mac = token.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(name, claim).encode()):
            return None
        generation, _, wake_id = claim.partition(".")
        return int(generation), wake_id

    def _mac(self, name: str, claim: str) -> str:
        return hmac.new(self._key, f"{name} {claim}".encode(), hashlib.sha256).hexdigest()

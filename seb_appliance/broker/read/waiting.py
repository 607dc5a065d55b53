"""Readers that wait until something is applied to their topics.

A `Waiter` waits once, at a log's end. A `Listener` stays and follows topics: it is woken, looks how
far the log goes, reads, and waits again, so that a slow follower costs only what is being sent. A
timer that all followers share wakes them while nothing happens.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from seb_appliance import limits
from seb_appliance.broker.callbacks import Turns, tell
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.topic import Topic, gone
from seb_appliance.clock import Clock, Timer
from seb_appliance.errors import BadParameterError, ShuttingDownError


class Waiter:
    """One reader at the end of one topic's log, in the share of `owner`. `leave` it when nobody is
    to be told any more."""

    __slots__ = ("_at", "_is_waiting", "_readers", "_timer", "_woken", "owner")

    def __init__(
        self,
        readers: WaitingReaders,
        at: int,
        seconds: float,
        owner: str,
        woken: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._readers = readers
        self._at = at
        self._woken = woken
        self._is_waiting = True
        self._timer: Timer = readers.clock.call_later(seconds, self.tell)

    def leave(self) -> None:
        """Nothing happens when it was told, or has left before."""
        if self._is_waiting:
            self._is_waiting = False
            self._timer.cancel()
            self._readers.forget(self, self._at)

    def tell(self) -> None:
        """For `WaitingReaders`: once, unless it has left."""
        if self._is_waiting:
            self.leave()
            self._woken()


class WaitingReaders:
    """Waiting costs an object and a timer each, and nothing while nothing happens. `shares`: of
    those who wait."""

    def __init__(self, clock: Clock, shares: AllShares) -> None:
        self.clock = clock
        self._by_topic: defaultdict[int, set[Waiter]] = defaultdict(set)
        self.stopping = False
        self.shares = shares.declare(
            "waiting_readers", limits.WAITING_READERS_MAX, "waiting readers"
        )
        self._turns = Turns()

    def tell(self, topic: Topic, seconds: float, owner: str, woken: Callable[[], None]) -> Waiter:
        """Call `woken` once, as soon as something changes in `topic`, `seconds` have passed, or the
        appliance stops. Raises ShareExceededError, OverloadedError when too many wait already."""
        self.shares.take(owner, 1)
        waiter = Waiter(self, topic.topic_id, seconds, owner, woken)
        self._by_topic[topic.topic_id].add(waiter)
        return waiter

    async def wait(self, topic: Topic, seconds: float, owner: str) -> None:
        """Until `tell` would tell. Raises as `tell`."""
        if self.stopping or seconds <= 0:
            return
        woken = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        waiter = self.tell(topic, seconds, owner, wake)
        try:
            await woken
        finally:
            waiter.leave()

    def forget(self, waiter: Waiter, topic_id: int) -> None:
        """For `Waiter`: it waits no longer."""
        self.shares.give_back(waiter.owner, 1)
        readers = self._by_topic.get(topic_id)
        if readers is None or waiter not in readers:  # it was woken
            return
        readers.discard(waiter)
        if not readers:
            del self._by_topic[topic_id]

    def wake(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._wake(self._by_topic.pop(topic.topic_id, ()))

    def stop(self) -> None:
        """Wake all, now and from now on."""
        self.stopping = True
        for readers in self._by_topic.values():
            self._wake(readers)
        self._by_topic.clear()

    def _wake(self, readers: Iterable[Waiter]) -> None:
        """They read at once: not in the midst of whoever wakes them all."""
        for waiter in readers:
            self._turns.add(waiter.owner, waiter.tell)


T = TypeVar("T", bound=Collection[object])


def check_count(topics: T) -> T:
    """`topics` themselves. Raises BadParameterError when they are too many for one stream."""
    if len(topics) > limits.FOLLOWED_TOPICS_MAX:
        raise BadParameterError(
            f"These patterns match more than {limits.FOLLOWED_TOPICS_MAX} topics; take narrower "
            "ones, and several streams."
        )
    return topics


class Listener:
    """One whom `Followers` wakes; made there, used in a `with` block."""

    def __init__(self, followers: Followers, owner: str) -> None:
        self._followers = followers
        self.owner = owner
        self._woken: asyncio.Future[None] | None = None
        self._is_due = False  # to be woken, in a turn of the loop that comes
        self._left = False

    @property
    def topic_ids(self) -> Iterable[int]:
        """Of whom it hears."""
        raise NotImplementedError

    @property
    def stopping(self) -> bool:
        """The appliance stops: followers have to go."""
        return self._followers.stopping

    @property
    def rings(self) -> int:
        """How often the timer of all followers has rung."""
        return self._followers.rings

    @property
    def left(self) -> bool:
        return self._left

    async def wait(self, seconds: float | None = None) -> None:
        """Until something may have changed: the topic, the time, `stopping`, or `leave`; so many
        seconds at most."""
        if self._left or self.stopping:
            return
        self._woken = asyncio.get_running_loop().create_future()
        timer = None if seconds is None else self._followers.call_later(seconds, self._resume)
        try:
            await self._woken
        finally:
            if timer is not None:
                timer.cancel()

    def note(self, topic: Topic) -> None:  # noqa: ARG002 - a follower of one knows which it is
        """This topic has changed."""
        self.wake()

    def wake(self) -> None:
        """Soon: when many are woken at one time, each has its turn."""
        if self._woken is not None and not (self._is_due or self._woken.done()):
            self._is_due = True
            self._followers.turns.add(self.owner, self._resume)

    def _resume(self) -> None:
        self._is_due = False
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def leave(self) -> None:
        """The client is gone: `wait` waits no more."""
        self._left = True
        self._resume()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._followers.forget(self)


class Follower(Listener):
    """One of those who follow `topic`."""

    def __init__(self, followers: Followers, owner: str, topic: Topic) -> None:
        super().__init__(followers, owner)
        self._topic = topic

    @property
    def topic_ids(self) -> Iterable[int]:
        return (self._topic.topic_id,)

    @property
    def topic_id(self) -> int:
        return self._topic.topic_id

    @property
    def log_end_offset(self) -> int:
        """Raises TopicNotFoundError once the topic is deleted, also if there is one of that name
        again."""
        if self._topic.deleted:
            raise gone(self._topic)
        return self._topic.log_end_offset


class FollowerOfMany(Listener):
    """One of those who follow all topics that it `wants`, also those that are made later.
    `changed`: those in which something may have happened, the first one first; the stream takes
    them out."""

    def __init__(self, followers: Followers, owner: str, wants: Callable[[str], bool]) -> None:
        super().__init__(followers, owner)
        self._wants = wants
        self.topics: dict[int, Topic] = {}
        self.changed: dict[int, Topic] = {}

    @property
    def topic_ids(self) -> Iterable[int]:
        return self.topics

    def note(self, topic: Topic) -> None:
        self.changed[topic.topic_id] = topic
        self.wake()

    def meet(self, topic: Topic) -> None:
        """There is this topic, which may be new."""
        if topic.topic_id not in self.topics and not topic.deleted and self._wants(topic.name):
            self.topics[topic.topic_id] = topic
            self._followers.join(self, topic)
            self.note(topic)

    def drop(self, topic: Topic) -> None:
        """It is gone, or not wanted any more."""
        if self.topics.pop(topic.topic_id, None) is not None:
            self._followers.part(self, topic.topic_id)
        self.changed.pop(topic.topic_id, None)


class Followers:
    """All of them. `budget`: bytes that are being sent to them; `recent`: what many of them are
    about to get; `turns`: of those who are woken; `cut`: how many were cut off because they took
    nothing."""

    def __init__(self, clock: Clock, shares: AllShares) -> None:
        self._shares = shares.declare("followers", limits.FOLLOWERS_MAX, "followers")
        self.budget = shares.declare(
            "following", limits.FOLLOWING_BYTES_MAX, "bytes of live streams"
        )
        self.recent = RecentParts(limits.FOLLOWED_PARTS_BYTES_MAX)
        self.turns = Turns()
        self.stopping = False
        self.cut = 0
        self.rings = 0
        self.call_later = clock.call_later
        self._timer: Timer | None = None
        self._by_topic: defaultdict[int, set[Listener]] = defaultdict(set)
        self._of_many: set[FollowerOfMany] = set()
        self._newest_id = 0  # of the topics that all of these have met

    @property
    def count(self) -> int:
        return self._shares.used

    def follow(self, topic: Topic, owner: str) -> Follower:
        """Raises ShareExceededError and OverloadedError when there are too many,
        ShuttingDownError."""
        follower = Follower(self, owner, topic)
        self._add(follower)
        return follower

    def follow_many(
        self, wants: Callable[[str], bool], newest_id: int, owner: str
    ) -> FollowerOfMany:
        """It follows no topic yet: the caller lets it `meet` those that exist. `newest_id`: of
        these. Raises as `follow`."""
        follower = FollowerOfMany(self, owner, wants)
        self._add(follower)
        if not self._of_many:
            self._newest_id = newest_id
        self._of_many.add(follower)
        return follower

    def _add(self, listener: Listener) -> None:
        if self.stopping:
            raise ShuttingDownError("The appliance is stopping; follow again in a moment.")
        self._shares.take(listener.owner, 1)
        for topic_id in listener.topic_ids:
            self._by_topic[topic_id].add(listener)
        if self._timer is None:
            self._arm()

    def join(self, follower: FollowerOfMany, topic: Topic) -> None:
        """It follows this topic, too."""
        self._by_topic[topic.topic_id].add(follower)

    def part(self, listener: Listener, topic_id: int) -> None:
        """It does not follow this topic any more."""
        self._by_topic[topic_id].remove(listener)
        if not self._by_topic[topic_id]:
            del self._by_topic[topic_id]

    def forget(self, listener: Listener) -> None:
        """Called once for each, when it is done."""
        self._shares.give_back(listener.owner, 1)
        for topic_id in listener.topic_ids:
            self.part(listener, topic_id)
        if isinstance(listener, FollowerOfMany):
            self._of_many.remove(listener)
        if self.count == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.recent.clear()

    def wake(self, topics: Iterable[Topic]) -> None:
        """These have changed."""
        if not self.count:
            return
        for topic in topics:
            for listener in self._by_topic.get(topic.topic_id, ()):
                listener.note(topic)
            if self._of_many and topic.topic_id > self._newest_id:
                self._newest_id = topic.topic_id
                for follower in self._of_many:
                    tell(follower.meet, topic)

    def stop(self) -> None:
        """Wake all to let them go; nobody may follow from now on."""
        self.stopping = True
        self._wake_all()

    def _arm(self) -> None:
        self._timer = self.call_later(limits.FOLLOWER_PING_S, self._ring)

    def _ring(self) -> None:
        self._arm()
        self.rings += 1
        self._wake_all()

    def _wake_all(self) -> None:
        for listeners in self._by_topic.values():
            for listener in listeners:
                listener.wake()
        for follower in self._of_many:  # of no topic, perhaps
            follower.wake()


@dataclass(frozen=True, slots=True)
class Part:
    """`count` records, encoded; `next_offset`: where the next part begins. `offsets`: of each, for
    those who follow many topics."""

    encoded: bytes
    count: int
    next_offset: int
    offsets: Sequence[int] = ()


class RecentParts:
    """Parts that one follower got and the others of the topic are about to get: whoever comes
    first encodes, the others find it here. The ones longest unused go first. A place is topic id,
    shape of the values, and the offset at which the part begins."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._parts: OrderedDict[tuple[int, str, int], Part] = OrderedDict()

    def get(self, place: tuple[int, str, int]) -> Part | None:
        found = self._parts.get(place)
        if found is not None:
            self._parts.move_to_end(place)
        return found

    def put(self, place: tuple[int, str, int], part: Part) -> None:
        """There is none at that place yet."""
        assert place not in self._parts, place
        self._parts[place] = part
        self._bytes += len(part.encoded)
        while self._bytes > self._bytes_max:
            _, dropped = self._parts.popitem(last=False)
            self._bytes -= len(dropped.encoded)

    def clear(self) -> None:
        self._parts.clear()
        self._bytes = 0

"""Followers: readers that stay, and are told of whatever is applied to their topic.

A follower holds no records. It is woken, looks how far the log goes, reads, and sleeps again; so a
slow one costs what it is sending and nothing more. One timer, shared by all, wakes them now and
then while nothing happens, and there is none while nobody follows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from seb_appliance import limits
from seb_appliance.broker.budget import ByteBudget
from seb_appliance.broker.catalog import Topic, no_such_topic
from seb_appliance.clock import Clock, Timer
from seb_appliance.errors import OverloadedError, ShuttingDownError


class Follower:
    """One of those who follow `topic`; made by `Followers.follow`, used in a `with` block."""

    def __init__(self, followers: Followers, topic: Topic) -> None:
        self._followers = followers
        self._topic = topic
        self._woken: asyncio.Future[None] | None = None
        self._left = False

    @property
    def topic_id(self) -> int:
        return self._topic.topic_id

    @property
    def log_end_offset(self) -> int:
        """Raises TopicNotFoundError once the topic is deleted, also if there is one of that name
        again."""
        if self._topic.deleted:
            raise no_such_topic(self._topic.name)
        return self._topic.log_end_offset

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

    async def wait(self) -> None:
        """Until something may have changed: the topic, the time, `stopping`, or `leave`."""
        if self._left or self.stopping:
            return
        self._woken = asyncio.get_running_loop().create_future()
        await self._woken

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def leave(self) -> None:
        """The client is gone: `wait` waits no more."""
        self._left = True
        self.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._followers.forget(self, self.topic_id)


class Followers:
    """All of them. `budget`: bytes that are being sent to them; `recent`: what many of them are
    about to get; `cut`: how many were cut off because they took nothing."""

    def __init__(self, clock: Clock) -> None:
        self.budget = ByteBudget(limits.FOLLOWING_BYTES_MAX, "followers")
        self.recent = RecentParts(limits.FOLLOWED_PARTS_BYTES_MAX)
        self.stopping = False
        self.count = 0
        self.cut = 0
        self.rings = 0
        self._clock = clock
        self._timer: Timer | None = None
        self._by_topic: defaultdict[int, set[Follower]] = defaultdict(set)

    def follow(self, topic: Topic) -> Follower:
        """Raises OverloadedError when there are too many, ShuttingDownError."""
        if self.stopping:
            raise ShuttingDownError("The appliance is stopping; follow again in a moment.")
        if self.count >= limits.FOLLOWERS_MAX:
            raise OverloadedError(f"There are {self.count} followers already; try again later.")
        follower = Follower(self, topic)
        self._by_topic[topic.topic_id].add(follower)
        self.count += 1
        if self._timer is None:
            self._arm()
        return follower

    def forget(self, follower: Follower, topic_id: int) -> None:
        """Called once for each follower, when it is done."""
        self.count -= 1
        self._by_topic[topic_id].remove(follower)
        if not self._by_topic[topic_id]:
            del self._by_topic[topic_id]
        if self.count == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.recent.clear()

    def wake(self, topics: Iterable[Topic]) -> None:
        """These have changed."""
        if self.count:
            for topic in topics:
                for follower in self._by_topic.get(topic.topic_id, ()):
                    follower.wake()

    def stop(self) -> None:
        """Wake all to let them go; nobody may follow from now on."""
        self.stopping = True
        self._wake_all()

    def _arm(self) -> None:
        self._timer = self._clock.call_later(limits.FOLLOWER_PING_S, self._ring)

    def _ring(self) -> None:
        self.rings += 1
        self._wake_all()
        self._arm()

    def _wake_all(self) -> None:
        for followers in self._by_topic.values():
            for follower in followers:
                follower.wake()


@dataclass(frozen=True, slots=True)
class Part:
    """`count` records, encoded; `next_offset`: where the next part begins."""

    encoded: bytes
    count: int
    next_offset: int


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

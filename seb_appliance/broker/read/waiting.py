"""Readers that wait for new records of their topics.

A `Waiter` waits once at the log end. A `Listener` follows topics for the life of a live answer: it
is woken, reads up to the log end, and waits again. A shared timer wakes all followers for pings.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeAlias

from seb_appliance import limits
from seb_appliance.broker.callbacks import Turns
from seb_appliance.broker.meeting import Meetings, Readers
from seb_appliance.broker.shares import AllShares, Shares
from seb_appliance.broker.topics.topic import Topic, gone
from seb_appliance.clock import Clock, Timer
from seb_appliance.errors import BadParameterError, ShuttingDownError


class Waiter:
    """One reader at the log end of a topic, in the share of `owner`."""

    __slots__ = ("_at", "_is_waiting", "_readers", "_timer", "_woken", "owner")

    def __init__(
        self,
        readers: WaitingReaders,
        at: int,
        seconds: float | None,
        owner: str,
        woken: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._readers = readers
        self._at = at
        self._woken = woken
        self._is_waiting = True
        self._timer: Timer | None = None
        if seconds is not None:
            self._timer = readers.clock.call_later(seconds, self.tell)

    def leave(self) -> None:
        """Do not call `woken` any more. Does nothing if it was called already."""
        if self._is_waiting:
            self._is_waiting = False
            if self._timer is not None:
                self._timer.cancel()
            self._readers.forget(self, self._at)

    def tell(self) -> None:
        if self._is_waiting:
            self.leave()
            self._woken()


class WaitingReaders:
    """A waiting reader costs an object and a timer."""

    def __init__(self, clock: Clock, shares: AllShares) -> None:
        self.clock = clock
        self._by_topic: defaultdict[int, set[Waiter]] = defaultdict(set)
        self.stopping = False
        self.shares = shares.declare(
            "waiting_readers", limits.WAITING_READERS_MAX, "waiting readers"
        )
        self._turns = Turns()

    def tell(
        self, topic: Topic, seconds: float | None, owner: str, woken: Callable[[], None]
    ) -> Waiter:
        """Call `woken` once: when `topic` changes, after `seconds` (None: the caller has a timer of
        its own, which makes it `leave`), or when the appliance stops.
        Raises ShareExceededError, OverloadedError when too many readers wait."""
        self.shares.take(owner, 1)
        waiter = Waiter(self, topic.topic_id, seconds, owner, woken)
        self._by_topic[topic.topic_id].add(waiter)
        return waiter

    async def wait(self, topic: Topic, seconds: float, owner: str) -> None:
        """Wait as long as `tell` does. Raises as `tell`."""
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
        self.shares.give_back(waiter.owner, 1)
        readers = self._by_topic.get(topic_id)
        if readers is not None:  # otherwise it was woken
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
        """In later turns of the loop, since each of them reads at once."""
        for waiter in readers:
            self._turns.add(waiter.owner, waiter.tell)


def check_count(topics: Collection[object]) -> None:
    """Raises BadParameterError when the topics are too many for one stream."""
    if len(topics) > limits.FOLLOWED_TOPICS_MAX:
        raise BadParameterError(
            f"These patterns match more than {limits.FOLLOWED_TOPICS_MAX} topics. Use narrower "
            "patterns in several streams."
        )


class Listener:
    """A follower that `Followers` makes and wakes; used in a `with` block."""

    def __init__(self, followers: Followers, owner: str) -> None:
        self._followers = followers
        self.owner = owner
        self.topics: dict[int, Topic] = {}  # that it follows, by id
        self.left = False
        self._woken: asyncio.Future[None] | None = None
        self._is_due = False  # it is woken in a later turn of the loop

    @property
    def stopping(self) -> bool:
        """The appliance stops: followers must leave."""
        return self._followers.stopping

    @property
    def rings(self) -> int:
        """How often the shared timer has fired."""
        return self._followers.rings

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for a change of a topic, the timer, `stopping` or `leave`; at most this number of
        seconds."""
        if self.left or self.stopping:
            return
        self._woken = asyncio.get_running_loop().create_future()
        timer = None if seconds is None else self._followers.call_later(seconds, self._resume)
        try:
            await self._woken
        finally:
            if timer is not None:
                timer.cancel()

    def note(self, topic: Topic) -> None:  # noqa: ARG002 - for subclasses
        """The topic has changed."""
        self.wake()

    def wake(self) -> None:
        """In a later turn of the loop, since many may be woken at one time."""
        if self._woken is not None and not (self._is_due or self._woken.done()):
            self._is_due = True
            self._followers.turns.add(self.owner, self._resume)

    def _resume(self) -> None:
        self._is_due = False
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def leave(self) -> None:
        """The client has disconnected: `wait` returns at once."""
        self.left = True
        self._resume()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._followers.forget(self)


class Follower(Listener):
    """Follows one topic."""

    def __init__(self, followers: Followers, owner: str, topic: Topic) -> None:
        super().__init__(followers, owner)
        self._topic = topic
        self.topic_id = topic.topic_id
        self.topics[self.topic_id] = topic

    @property
    def log_end_offset(self) -> int:
        """Raises TopicNotFoundError once the topic is deleted, even if its name is used again."""
        if self._topic.deleted:
            raise gone(self._topic)
        return self._topic.log_end_offset


class FollowerOfMany(Listener):
    """Follows all topics that it `wants`, also those created later. `changed`: topics that may have
    new records, in order of their changes; the stream removes them. Of `room` it takes one for each
    topic; `lacks_room`: there was none for one of them."""

    def __init__(
        self,
        followers: Followers,
        owner: str,
        wants: Callable[[str], bool],
        room: Shares | None = None,
    ) -> None:
        super().__init__(followers, owner)
        self._wants = wants
        self._room = room
        self.lacks_room = False
        self.changed: dict[int, Topic] = {}

    def note(self, topic: Topic) -> None:
        self.changed[topic.topic_id] = topic
        self.wake()

    def meet(self, topic: Topic) -> None:
        """The topic exists, and may be new."""
        if topic.topic_id in self.topics or topic.deleted or self.left:
            return
        if not self._wants(topic.name):
            return
        if self._room is not None and not self._room.try_take(self.owner, 1):
            self.lacks_room = True
            self.wake()
        else:
            self.topics[topic.topic_id] = topic
            self._followers.readers.add(self, topic.topic_id)
            self.note(topic)

    def drop(self, topic: Topic) -> None:
        """The topic is deleted, or not wanted any more."""
        if self.topics.pop(topic.topic_id, None) is not None:
            self._followers.readers.remove(self, [topic.topic_id])
            self._give_back(1)
        self.changed.pop(topic.topic_id, None)

    def forget_all(self) -> None:
        """It is not used any more."""
        self.left = True
        self._followers.readers.remove(self, self.topics)
        self._give_back(len(self.topics))
        self.topics = {}

    def _give_back(self, count: int) -> None:
        if self._room is not None:
            self._room.give_back(self.owner, count)


class Followers:
    """All live followers. `budget`: bytes that are being sent; `recent`: encoded parts that others
    will need; `cut`: how many were disconnected because they read nothing."""

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
        self.readers = Readers[Listener](lambda listener, topic: listener.note(topic))
        self._all: set[Listener] = set()
        self._of_many: set[FollowerOfMany] = set()
        self._newest_id = 0  # of the topics that all of these have met, or will soon
        self._meetings = Meetings(lambda: self._of_many, self._meet)

    @property
    def count(self) -> int:
        return self._shares.used

    def follow(self, topic: Topic, owner: str) -> Follower:
        """Raises ShareExceededError, OverloadedError, ShuttingDownError."""
        follower = Follower(self, owner, topic)
        self._add(follower)
        return follower

    def follow_many(
        self,
        wants: Callable[[str], bool],
        newest_id: int,
        owner: str,
        room: Shares | None = None,
    ) -> FollowerOfMany:
        """It follows no topic yet: the caller lets it `meet` those that exist, up to `newest_id`.
        Raises as `follow`."""
        follower = FollowerOfMany(self, owner, wants, room)
        self._add(follower)
        if not self._of_many:
            self._newest_id = newest_id
        self._of_many.add(follower)
        return follower

    def _add(self, listener: Listener) -> None:
        if self.stopping:
            raise ShuttingDownError("The appliance is stopping; connect again in a moment.")
        self._shares.take(listener.owner, 1)
        self._all.add(listener)
        for topic_id in listener.topics:
            self.readers.add(listener, topic_id)
        if self._timer is None:
            self._timer = self.call_later(limits.FOLLOWER_PING_S, self._ring)

    def forget(self, listener: Listener) -> None:
        """Called once for each, when it leaves."""
        self._shares.give_back(listener.owner, 1)
        self._all.remove(listener)
        if isinstance(listener, FollowerOfMany):
            self._of_many.remove(listener)
            listener.forget_all()
        else:
            self.readers.remove(listener, listener.topics)
        if self.count == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.recent.clear()

    def wake(self, topics: Iterable[Topic]) -> None:
        """These have changed."""
        if not self.count:
            return
        for topic in topics:
            self.readers.changed(topic)
            if self._of_many and topic.topic_id > self._newest_id:
                self._newest_id = topic.topic_id
                self._meetings.add(topic)

    def _meet(self, follower: FollowerOfMany, topic: Topic) -> None:
        if follower in self._of_many:
            follower.meet(topic)

    def stop(self) -> None:
        """Wake all, so that they leave; refuse new followers."""
        self.stopping = True
        self._wake_all()

    def _ring(self) -> None:
        self._timer = self.call_later(limits.FOLLOWER_PING_S, self._ring)
        self.rings += 1
        self._wake_all()

    def _wake_all(self) -> None:
        for listener in self._all:
            listener.wake()


@dataclass(frozen=True, slots=True)
class Part:
    """`count` encoded records; the next part begins at `next_offset`. `offsets`: of each record,
    for followers of many topics."""

    encoded: bytes
    count: int
    next_offset: int
    offsets: Sequence[int] = ()


Place: TypeAlias = tuple[int, str, int]
"""Of a part: the topic id, the shape of values, and the first offset."""


class RecentParts:
    """Parts that the first follower of a topic encodes and the others will need; the least recently
    used are dropped."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._parts: OrderedDict[Place, Part] = OrderedDict()
        self._making: dict[Place, asyncio.Task[Part]] = {}

    def get(self, place: Place) -> Part | None:
        found = self._parts.get(place)
        if found is not None:
            self._parts.move_to_end(place)
        return found

    async def made_once(self, place: Place, make: Callable[[], Coroutine[Any, Any, Part]]) -> Part:
        """The part. Others run while it is read and encoded: who asks for it then waits for it."""
        found = self.get(place)
        if found is not None:
            return found
        task = self._making.get(place)
        if task is None:
            task = self._making[place] = asyncio.create_task(make())
            task.add_done_callback(partial(self._put, place))
        return await asyncio.shield(task)  # whoever asked first may leave

    def _put(self, place: Place, task: asyncio.Task[Part]) -> None:
        del self._making[place]
        if task.cancelled() or task.exception() is not None:
            return
        self._parts[place] = task.result()
        self._bytes += len(task.result().encoded)
        while self._bytes > self._bytes_max:
            _, dropped = self._parts.popitem(last=False)
            self._bytes -= len(dropped.encoded)

    def clear(self) -> None:
        self._parts.clear()
        self._bytes = 0

"""Readers that wait at a log's end until something is applied there."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from seb_appliance import limits
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topic import Topic
from seb_appliance.clock import Clock, Timer


class Waiter:
    """One reader at the end of one topic's log. `leave` it when nobody is to be told any more."""

    __slots__ = ("_at", "_readers", "_timer", "_woken", "owner")

    def __init__(
        self,
        readers: WaitingReaders,
        at: int,
        seconds: float,
        woken: Callable[[], None],
        owner: str,
    ) -> None:
        self.owner = owner
        self._readers = readers
        self._at = at
        self._woken = woken
        self._timer: Timer = readers.clock.call_later(seconds, self._give_up)

    def leave(self) -> None:
        """Nothing happens when it was woken, or has left before."""
        self._timer.cancel()
        self._readers.forget(self, self._at)

    def wake(self) -> None:
        """Those who are told read at once: not in the midst of whoever wakes them all."""
        self._timer.cancel()
        asyncio.get_running_loop().call_soon(self._woken)

    def _give_up(self) -> None:
        self._readers.forget(self, self._at)
        self._woken()


class WaitingReaders:
    """Waiting costs an object and a timer each, and nothing while nothing happens."""

    def __init__(self, clock: Clock, shares: AllShares) -> None:
        self._shares = shares.declare(
            "waiting_readers", limits.WAITING_READERS_MAX, "waiting reads"
        )
        self.clock = clock
        self._by_topic: defaultdict[int, set[Waiter]] = defaultdict(set)
        self.stopping = False

    @property
    def count(self) -> int:
        return self._shares.used

    def tell(self, topic: Topic, seconds: float, woken: Callable[[], None], owner: str) -> Waiter:
        """Call `woken` once, as soon as something changes in `topic`, `seconds` have passed, or the
        appliance stops. Raises ShareExceededError, OverloadedError."""
        self._shares.take(owner, 1)
        waiter = Waiter(self, topic.topic_id, seconds, woken, owner)
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

        waiter = self.tell(topic, seconds, wake, owner)
        try:
            await woken
        finally:
            waiter.leave()

    def forget(self, waiter: Waiter, topic_id: int) -> None:
        """For `Waiter`: it waits no longer."""
        readers = self._by_topic.get(topic_id)
        if readers is None or waiter not in readers:
            return
        readers.discard(waiter)
        self._shares.give_back(waiter.owner, 1)
        if not readers:
            del self._by_topic[topic_id]

    def wake(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            for waiter in self._by_topic.pop(topic.topic_id, ()):
                self._shares.give_back(waiter.owner, 1)
                waiter.wake()

    def stop(self) -> None:
        """Wake all, now and from now on."""
        self.stopping = True
        for readers in self._by_topic.values():
            for waiter in readers:
                self._shares.give_back(waiter.owner, 1)
                waiter.wake()
        self._by_topic.clear()

"""Readers that wait at a log's end until something is applied there."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from seb_appliance import limits
from seb_appliance.broker.callbacks import Turns
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.clock import Clock, Timer


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

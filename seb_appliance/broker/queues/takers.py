"""Those who take records of one queue: what they get, and how they wait for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from seb_appliance.broker.queues.deliveries import Out
from seb_appliance.broker.shares import Shares
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import BatchSlice
from seb_appliance.clock import Clock


@dataclass(frozen=True, slots=True)
class Lent:
    """Records of one topic that are out under one lease; `deliveries` in the same order."""

    topic: Topic
    offsets: list[int]
    deliveries: list[Out]


@dataclass(frozen=True, slots=True)
class Taken(Lent):
    """With what they hold: neighbours of one batch, all of which stays in memory with them."""

    piece: BatchSlice

    def without_records(self) -> Lent:
        return Lent(self.topic, self.offsets, self.deliveries)


class Takers:
    """They cost nothing until they are woken, one at a time, the one that waits longest first."""

    def __init__(self, clock: Clock, shares: Shares, pass_on: Callable[[], None]) -> None:
        """`pass_on`: a taker was woken and has left."""
        self._clock = clock
        self._shares = shares
        self._pass_on = pass_on
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, seconds: float, owner: str) -> None:
        """Until woken, or for so long. Raises ShareExceededError, OverloadedError."""
        self._shares.take(owner, 1)
        woken = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self._clock.call_later(seconds, wake)
        self._waiting[woken] = None
        try:
            await woken
        except BaseException:
            if woken.done() and not woken.cancelled():
                self._pass_on()
            raise
        finally:
            timer.cancel()
            self._shares.give_back(owner, 1)
            self._waiting.pop(woken, None)

    def wake_one(self) -> None:
        while self._waiting:
            woken, _ = self._waiting.popitem(last=False)
            if not woken.done():
                woken.set_result(None)
                return

    def wake_all(self) -> None:
        while self._waiting:
            self.wake_one()

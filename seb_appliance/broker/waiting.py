"""Readers that wait at a log's end until something is applied there."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from seb_appliance import limits
from seb_appliance.broker.catalog import Topic
from seb_appliance.clock import Clock
from seb_appliance.errors import OverloadedError


class WaitingReaders:
    """Waiting costs a future and a timer each, and nothing while nothing happens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_topic: defaultdict[int, set[asyncio.Future[None]]] = defaultdict(set)
        self.stopping = False
        self.count = 0

    async def wait(self, topic: Topic, seconds: float) -> None:
        """Until something changes in `topic`, `seconds` have passed, or the appliance stops.

        Raises OverloadedError when too many readers wait already.
        """
        if self.stopping or seconds <= 0:
            return
        if self.count >= limits.WAITING_READERS_MAX:
            raise OverloadedError(f"{self.count} readers wait already; try again later.")
        woken = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, lambda: _wake(woken))
        readers = self._by_topic[topic.topic_id]
        readers.add(woken)
        self.count += 1
        try:
            await woken
        finally:
            self.count -= 1
            timer.cancel()
            readers.discard(woken)
            if not readers and self._by_topic.get(topic.topic_id) is readers:
                del self._by_topic[topic.topic_id]

    def wake(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            for woken in self._by_topic.pop(topic.topic_id, ()):
                _wake(woken)

    def stop(self) -> None:
        """Wake all, now and from now on."""
        self.stopping = True
        for readers in self._by_topic.values():
            for woken in readers:
                _wake(woken)
        self._by_topic.clear()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)

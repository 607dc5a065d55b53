"""Forgetting delays that have passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.delays.queue_delays import QueueDelays
from seb_appliance.broker.ports import State
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.errors import SebError
from seb_appliance.formats.operations import DelaysPassed
from seb_appliance.tasks import Job, in_slices

_SURELY_PASSED_US: Final = 60_000_000  # before now: a clock that is set back a little repeats none


class DelayUpkeep(Job):
    """Counts what is delayed, and forgets what was due and is needed by no queue. Nothing runs
    while no record is delayed."""

    name = "delays"

    def __init__(
        self,
        catalog: Catalog,
        state: State,
        writes: Writes,
        of_queues: Callable[[], Iterable[QueueDelays]],
    ) -> None:
        self._catalog = catalog
        self._delays = catalog.delays
        self._state = state
        self._writes = writes
        self._of_queues = of_queues

    async def _run(self) -> None:
        while True:
            await self._delays.any.wait()
            await self._writes.clock.sleep(limits.DELAYS_TIDY_S)
            try:
                await self._forget_passed()
                changes = self._delays.changes
                found = await self._state.delayed_topics()
            except SebError:
                continue  # SQLite or the bucket does not follow; nothing is lost
            if changes == self._delays.changes:
                self._delays.count(found)

    async def _forget_passed(self) -> None:
        # What a queue passes over from now on is due later than now.
        now_us = self._writes.clock.wall_us() - _SURELY_PASSED_US
        needed = await self._needed_from_us()
        passed = list[DelaysPassed]()
        for topic_id, *_ in await self._state.delayed_topics():
            until_us = limits.OFFSET_MAX  # of a topic that was deleted
            if self._catalog.find_rows(topic_id) is not None:
                until_us = min(now_us, needed.get(topic_id, limits.OFFSET_MAX) - 1)
            all_of_it = [(topic_id, limits.OFFSET_MAX)]
            oldest = await self._state.delays_by_time(all_of_it, (-1, -1), 1)
            if oldest and oldest[0].due_us <= until_us:
                passed.append(DelaysPassed(topic_id=topic_id, until_us=until_us))
        if not passed:
            return

        def admit(window: Window) -> None:
            for event in passed:
                window.add_event(event)

        linger_ms = max(limits.LINGER_MS_MAX, self._writes.linger.default_ms)
        await self._writes.operate(admit, linger_ms)

    async def _needed_from_us(self) -> dict[int, int]:
        """By topic id: what is due then or later is still needed by a queue."""
        needed = dict[int, int]()
        for delays in list(self._of_queues()):
            async for topic_id, from_us in in_slices(delays.needed()):
                needed[topic_id] = min(from_us, needed.get(topic_id, from_us))
        return needed

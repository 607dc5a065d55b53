"""Forgetting delays that have passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.ports import State
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.errors import SebError
from seb_appliance.formats.operations import DelaysPassed
from seb_appliance.tasks import Job

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
        needed_from_us: Callable[[int], int],
    ) -> None:
        """`needed_from_us`: what is due then or later is still needed by a queue."""
        self._catalog = catalog
        self._delays = catalog.delays
        self._state = state
        self._writes = writes
        self._needed_from_us = needed_from_us

    async def _run(self) -> None:
        while True:
            await self._delays.any.wait()
            await self._writes.clock.sleep(limits.DELAYS_TIDY_S)
            try:
                for topic_id, *_ in await self._state.delayed_topics():
                    while await self._forget_some(topic_id):
                        pass
                changes = self._delays.changes
                found = await self._state.delayed_topics()
            except SebError:
                continue  # SQLite or the bucket does not follow; nothing is lost
            if changes == self._delays.changes:
                self._delays.count(found)

    async def _forget_some(self, topic_id: int) -> bool:
        until_us = limits.OFFSET_MAX  # of a topic that was deleted
        if self._catalog.find_rows(topic_id) is not None:
            now_us = self._writes.clock.wall_us() - _SURELY_PASSED_US
            until_us = min(now_us, self._needed_from_us(topic_id) - 1)
        all_of_it = [(topic_id, limits.OFFSET_MAX)]
        oldest = await self._state.delays_by_time(all_of_it, (-1, -1), 1)
        if not oldest or oldest[0].due_us > until_us:
            return False

        def admit(window: Window) -> None:
            window.add_event(DelaysPassed(topic_id=topic_id, until_us=until_us))

        linger_ms = max(limits.LINGER_MS_MAX, self._writes.linger.default_ms)
        await self._writes.operate(admit, linger_ms)
        return True

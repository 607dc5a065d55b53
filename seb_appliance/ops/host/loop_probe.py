"""How late the event loop is: what anything that waits for it waits longer."""

from __future__ import annotations

from typing import Final

from seb_appliance import limits
from seb_appliance.broker.counters import Histogram
from seb_appliance.clock import Clock
from seb_appliance.tasks import Background, Supervisor

_KEPT: Final = 60  # delays, of which `worst_s` is the largest: about a minute


class LoopProbe:
    """Sleeps for a second, again and again, and notes how much longer it took."""

    def __init__(self, clock: Clock) -> None:
        self.delays = Histogram()
        self._newest: list[float] = []
        self._clock = clock
        self._task: Background | None = None

    @property
    def worst_s(self) -> float:
        """The longest delay in the last minute."""
        return max(self._newest, default=0.0)

    def start(self, supervisor: Supervisor) -> None:
        self._task = supervisor.keep("loop-probe", self._run)

    async def close(self) -> None:
        if self._task is not None:
            await self._task.close()

    async def _run(self) -> None:
        while True:
            due_s = self._clock.monotonic_s() + limits.LOOP_PROBE_S
            await self._clock.sleep(limits.LOOP_PROBE_S)
            delay_s = max(0.0, self._clock.monotonic_s() - due_s)
            self.delays.note(delay_s)
            self._newest = [*self._newest[1 - _KEPT :], delay_s]

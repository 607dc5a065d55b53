"""The clock of one simulated machine: virtual time, and a wall clock that may be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.simulation.loop import SimulatedLoop

START_US = 1_800_000_000_000_000
BOOT_S = 1000.0  # what a monotonic clock shows at the beginning


class SimulatedClock:
    """`wall_offset_us`: by how much the machine's wall clock is ahead."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.wall_offset_us = 0
        self._loop = loop

    def wall_us(self) -> int:
        return START_US + int(self._loop.time() * 1e6) + self.wall_offset_us

    def monotonic_s(self) -> float:
        return BOOT_S + self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)

"""Time, as everything here receives it through its constructor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

# Goes on while the machine sleeps, where the system has such a clock.
_MONOTONIC: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_s() -> float:
    """Seconds from some fixed point. Never goes back."""
    return time.clock_gettime(_MONOTONIC)


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall time for people, monotonic time for deadlines."""

    def wall_us(self) -> int:
        """µs since the epoch, UTC. May jump."""

    def monotonic_s(self) -> float:
        """Seconds from some fixed point. Never goes back."""

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop once `seconds` have passed."""


class SystemClock:
    """The machine's clock and the running event loop's timers."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class ClockOver:
    """A base of clocks that have a wall time of their own, and all else of another clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._clock.call_later(seconds, callback)

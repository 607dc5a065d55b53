"""The wall clock, corrected by the store's when ours is far off.

Entries carry the time that retention will go by: with a clock that is over ten minutes off the
Date of the store's last answer, the store's time is taken (docs/ARCHITECTURE.md, faults).
"""

from __future__ import annotations

from collections.abc import Callable

from seb_appliance.clock import Clock, Timer
from seb_appliance.storage.object_store import ObjectStore

TOLERATED_S = 600.0


class StoreClock:
    """A `Clock`; only wall time is corrected."""

    def __init__(self, clock: Clock, store: ObjectStore) -> None:
        self._clock = clock
        self._store = store

    def wall_us(self) -> int:
        offset_s = self._store.clock_offset_s
        corrected = int(offset_s * 1_000_000) if abs(offset_s) > TOLERATED_S else 0
        return self._clock.wall_us() + corrected

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._clock.call_later(seconds, callback)

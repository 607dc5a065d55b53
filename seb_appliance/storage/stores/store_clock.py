"""The wall clock, checked against the Date of the store's answers and the monotonic clock: of these
three, the two that agree win over one that jumps."""

from __future__ import annotations

from seb_appliance import limits
from seb_appliance.clock import Clock, ClockOver
from seb_appliance.storage.stores.object_store import ObjectStore


class StoreClock(ClockOver):
    """A `Clock` that corrects wall time only. `dates_refused`: number of impossible Dates."""

    def __init__(self, clock: Clock, store: ObjectStore) -> None:
        self.dates_refused = 0
        super().__init__(clock)
        self._store = store
        self._ahead_us: int | None = None  # of the monotonic clock, when the store was heard last

    def wall_us(self) -> int:
        """The machine's time, if the store's Date is absent or within ten minutes of it. Otherwise
        the one of the two that has not jumped; a first Date that differs is trusted."""
        monotonic_us = int(self._clock.monotonic_s() * 1e6)
        wall_us = min(max(0, self._clock.wall_us()), limits.TIME_US_MAX)
        store_us = self._store_us(monotonic_us)
        if store_us is None:
            return wall_us
        if abs(store_us - wall_us) <= limits.CLOCK_JUMP_US_MAX:
            now_us = wall_us
        elif self._ahead_us is None:
            now_us = store_us
        else:
            expected_us = monotonic_us + self._ahead_us
            now_us = min(wall_us, store_us, key=lambda told_us: abs(told_us - expected_us))
        self._ahead_us = now_us - monotonic_us
        return now_us

    def warnings(self) -> list[str]:
        """Warns the operator if the two differ so much that one of them counts for nothing."""
        monotonic_us, wall_us = int(self._clock.monotonic_s() * 1e6), self._clock.wall_us()
        store_us = self._store_us(monotonic_us)
        if store_us is None or abs(store_us - wall_us) <= limits.CLOCK_JUMP_US_MAX:
            return []
        now_us = self.wall_us()
        right, wrong = ("store", "machine") if now_us == store_us else ("machine", "store")
        hours = abs(store_us - wall_us) / 3.6e9
        ahead = "ahead of" if store_us > wall_us else "behind"
        told = (
            f"the clock of the store is {hours:,.1f} h {ahead} that of this machine. That of the "
            f"{right} is believed. If that of the {wrong} is right, stop within an hour, before "
            "anything is deleted by its age, and set the other one (docs/OPERATIONS.md, Time)"
        )
        return [told]

    def _store_us(self, monotonic_us: int) -> int | None:
        ahead_s = self._store.date_ahead_s
        if ahead_s is None:
            return None
        store_us = monotonic_us + int(ahead_s * 1e6)
        if limits.TIME_US_MIN <= store_us <= limits.TIME_US_MAX:
            return store_us
        self.dates_refused += 1
        return None

"""The log's clock: the source of `created`, and the measure of age for every deletion.

It never jumps and never stops. It runs toward the wall clock, between half as fast and a tenth
faster than the monotonic clock. A wall clock that is wrong for an hour moves it by six minutes, and
a log with `created` in the future still ages.
"""

from __future__ import annotations

from collections.abc import Callable

from seb_appliance import limits
from seb_appliance.clock import Clock, ClockOver


def warnings(last_us: int, now_us: int) -> list[str]:
    """Warns the operator if the last entry was created in the future."""
    if last_us - now_us < limits.CLOCK_JUMP_US_MAX:
        return []
    hours = (last_us - now_us) / 3.6e9
    told = (
        f"the log's clock is {hours:,.1f} h ahead of now: an entry was written while "
        "a clock was wrong. Check the clocks of this machine and of the store. If now is right, "
        "nothing has to be done: the log's clock runs at half speed until now has caught up, and "
        "all that goes by age goes by it (docs/OPERATIONS.md, Time)"
    )
    return [told]


def idle_warnings(before_us: int | None, now_us: int) -> list[str]:
    """Warns the operator if only this machine's clock tells how long the log was idle. `before_us`:
    `created` of the last entry before the start."""
    if before_us is None or now_us - before_us <= limits.IDLE_US_BELIEVED:
        return []
    days = (now_us - before_us) / 8.64e10
    told = (
        f"the last entry is {days:,.1f} days old by the clock of this machine, and the store tells "
        "no time to check it by. If the clock is wrong, a request that is repeated because it was "
        "not answered before this start is not recognized, and is stored a second time. What the "
        "pause makes old is deleted in an hour: set the clock until then (docs/OPERATIONS.md, Time)"
    )
    return [told]


class LogClock(ClockOver):
    """A `Clock`. Its wall time is the wall clock's, but never ahead of the log's: what has not
    expired by `wall_us` may not be deleted. `last_us`: `created` of the last entry.

    Only at the start of a process the log's clock jumps forward to the wall clock, because the log
    may have been idle for months. If it seems to have been idle for over a day, nothing ages by
    that for an hour, in which a wrong clock can be corrected. `before_us`: `created` of the last
    entry before the start.
    """

    def __init__(
        self, clock: Clock, last_us: Callable[[], int], before_us: int | None = None
    ) -> None:
        super().__init__(clock)
        self._last_us = last_us
        wall_us = clock.wall_us()
        self._now_us: float = max(wall_us, last_us())
        self._at_s = self._began_s = clock.monotonic_s()
        self._held_us: int | None = None  # stands for the wall clock at first
        if before_us is not None and wall_us - before_us > limits.IDLE_US_BELIEVED:
            self._held_us = before_us

    def created_us(self) -> int:
        """The log's time. It never goes back, and is never before the last entry."""
        at_s, wall_us = self._clock.monotonic_s(), self._clock.wall_us()
        passed_us = (at_s - self._at_s) * 1e6
        least_us = self._now_us + limits.LOG_CLOCK_SLOWEST * passed_us
        most_us = self._now_us + limits.LOG_CLOCK_FASTEST * passed_us
        self._now_us = max(min(max(wall_us, least_us), most_us), self._last_us())
        self._at_s = at_s
        return int(self._now_us)

    def wall_us(self) -> int:
        now_us = min(self._clock.wall_us(), self.created_us())
        if self._held_us is None:
            return now_us
        passed_s = self._at_s - self._began_s
        if passed_s >= limits.START_BELIEVED_S:
            self._held_us = None
            return now_us
        return min(now_us, self._held_us + int(passed_s * 1e6))

    @property
    def ahead_s(self) -> float:
        """How far it is ahead of the wall clock; negative: behind."""
        return (self.created_us() - self._clock.wall_us()) / 1e6

    def age_us(self, created_us: int) -> int:
        """How long ago something with this `created` was stored; by the log's clock if the wall
        clock says that it is in the future."""
        wall_us = self.wall_us()
        return (wall_us if created_us <= wall_us else self.created_us()) - created_us

    def cutoff_us(self, age_us: int, oldest_us: int) -> int:
        """Items with `created` up to this are at least `age_us` old, in a sequence of items that
        begins at `oldest_us`. If the log's clock jumped within the sequence, this covers only the
        items before the jump."""
        return oldest_us + self.age_us(oldest_us) - age_us

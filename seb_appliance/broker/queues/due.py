"""Things that come due, kept so that removing one that is done costs nothing later.

A heap would keep each acknowledged lease until it would have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_PER_SECOND: Final = 10  # a thing comes due up to 0.1 s late


class DueTimes(Generic[T]):
    """Each thing is in it once at most, and is removed with the time that it was added with."""

    def __init__(self) -> None:
        self._by_tick: dict[int, dict[T, None]] = {}
        self._ticks: list[int] = []  # a heap; some are empty by now

    def add(self, thing: T, at_s: float) -> None:
        tick = _tick(at_s)
        things = self._by_tick.get(tick)
        if things is None:
            things = self._by_tick[tick] = {}
            heappush(self._ticks, tick)
        things[thing] = None

    def remove(self, thing: T, at_s: float) -> None:
        del self._by_tick[_tick(at_s)][thing]

    def discard(self, thing: T, at_s: float) -> None:
        """As `remove`, if it was not taken out before."""
        self._by_tick.get(_tick(at_s), {}).pop(thing, None)

    def is_due(self, now_s: float) -> bool:
        """Whether something may be due."""
        return bool(self._ticks) and self._ticks[0] <= now_s * _PER_SECOND

    def due(self, now_s: float) -> Iterator[T]:
        """Take out what is due, one by one."""
        while self.is_due(now_s):
            things = self._by_tick[self._ticks[0]]
            if things:
                yield things.popitem()[0]
            else:
                del self._by_tick[heappop(self._ticks)]

    @property
    def next_s(self) -> float | None:
        """When the first of them is due; None if there is none."""
        while self._ticks and not self._by_tick[self._ticks[0]]:
            del self._by_tick[heappop(self._ticks)]
        return self._ticks[0] / _PER_SECOND if self._ticks else None


def _tick(at_s: float) -> int:
    """The first one that is not before `at_s`."""
    return -int(-at_s * _PER_SECOND // 1)

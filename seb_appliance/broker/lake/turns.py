"""Whose turn it is, where one process works for all."""

from __future__ import annotations

from collections.abc import Hashable


class Turns:
    """By the seconds that each kind of work took so far: what took least is next. What was not
    needed for a while has no more turns afterwards than what was."""

    def __init__(self) -> None:
        self._took_s: dict[Hashable, float] = {}
        self._begin_s = 0.0  # what the work of the last turn had taken before that

    def place_s(self, work: Hashable) -> float:
        """The smallest is next."""
        return max(self._begin_s, self._took_s.get(work, 0.0))

    def had(self, work: Hashable, seconds: float) -> None:
        self._begin_s = self.place_s(work)
        self._took_s[work] = self._begin_s + seconds
        self._took_s = {one: s for one, s in self._took_s.items() if s > self._begin_s}

"""How far groups were behind: with each sample, for an hour, in memory. A restart begins anew.

`limits.LAGS_SAMPLED` pairs of group and topic are watched, in order of the groups' names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from seb_appliance import limits

Pair = tuple[str, int]  # group, topic id


class LagHistory:
    def __init__(self) -> None:
        self._at_us: deque[int] = deque(maxlen=limits.LAG_SAMPLES_KEPT)
        # The newest numbers of each pair; one with fewer than there are times began later.
        self._lags: dict[Pair, deque[int]] = {}

    def add(self, at_us: int, lags: Mapping[Pair, int]) -> None:
        """A sample of all pairs that there are now; others are forgotten."""
        self._at_us.append(at_us)
        self._lags = {
            pair: self._lags.get(pair) or deque(maxlen=limits.LAG_SAMPLES_KEPT) for pair in lags
        }
        for pair, lag in lags.items():
            self._lags[pair].append(lag)

    def of(self, group: str, topic_id: int) -> list[tuple[int, float]]:
        """Time and records behind, oldest first; none of a pair that is not watched."""
        lags = self._lags.get((group, topic_id), ())
        return [
            (at_us, float(lag))
            for at_us, lag in zip(
                list(self._at_us)[len(self._at_us) - len(lags) :], lags, strict=True
            )
        ]

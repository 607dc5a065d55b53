"""How long something took, counted in steps of a fourth of a doubling: what percentiles need.

Counts only grow, so the difference of two readings tells of the time between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_SMALLEST_S: Final = 0.0001
_STEPS_PER_DOUBLING: Final = 4
_STEPS: Final = 96  # up to 28 minutes


class Latencies:
    def __init__(self) -> None:
        self.counts: list[int] = [0] * _STEPS

    def add(self, seconds: float) -> None:
        doublings = math.log2(max(seconds, _SMALLEST_S) / _SMALLEST_S)
        self.counts[min(_STEPS - 1, int(doublings * _STEPS_PER_DOUBLING))] += 1


def percentile_s(counts: Sequence[int], fraction: float) -> float | None:
    """What `fraction` of them took at most, in seconds, within 19 %; None when there are none."""
    wanted = fraction * sum(counts)
    if not wanted:
        return None
    seen = 0
    for step, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return float(_SMALLEST_S * 2 ** ((step + 1) / _STEPS_PER_DOUBLING))
    raise AssertionError((wanted, seen))

"""How much comes into each topic: in the last sample, in memory. A restart begins anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicRate:
    """A second, in the mean; bytes as they are stored."""

    records: float
    bytes: float


class TopicRates:
    """Holds the topics into which something came in the last sample, and no others."""

    def __init__(self) -> None:
        self._seconds = 0.0  # none yet
        self._came_in: Mapping[int, tuple[int, int]] = {}

    def add(self, seconds: float, came_in: Mapping[int, tuple[int, int]]) -> None:
        """A sample: records and bytes that came in those `seconds`, by topic id."""
        self._seconds, self._came_in = seconds, came_in

    def of(self, topic_id: int) -> TopicRate | None:
        """None before the first sample."""
        if not self._seconds:
            return None
        records, size_bytes = self._came_in.get(topic_id, (0, 0))
        return TopicRate(records / self._seconds, size_bytes / self._seconds)

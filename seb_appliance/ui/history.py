"""Samples for the charts of the admin page.

`History` samples the appliance every 15 s and keeps a day, also over a restart. `LagHistory` keeps
the lag of groups for an hour and `TopicRates` the newest rates of topics, both in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest

import msgspec

from seb_appliance import limits


class Sample(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Counts are those of the `seconds` before `at_us`, not totals. `size_bytes`: the size of all
    topics at `at_us`. Latencies are None if nothing was stored. A sample takes about 400 bytes, a
    day 2.3 MB."""

    at_us: int
    seconds: float
    records_in: int
    bytes_in: int
    entries: int
    records_out: int
    sections_at_hand: int  # read from memory or from the disk cache
    sections_fetched: int  # read from the bucket
    bucket_requests: int
    put_p50_s: float | None
    put_p99_s: float | None
    size_bytes: int


class History:
    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=limits.SAMPLES_KEPT)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def since(self, at_us: int) -> list[Sample]:
        """Samples later than `at_us`, oldest first."""
        return [sample for sample in self._samples if sample.at_us > at_us]


Pair = tuple[str, int]  # group, topic id


class LagHistory:
    """The lag of groups on topics. Callers add at most `limits.LAGS_SAMPLED` pairs, the first by
    name."""

    def __init__(self) -> None:
        self._at_us: deque[int] = deque(maxlen=limits.LAG_SAMPLES_KEPT)
        # The newest lags of each pair. A pair that was added later has fewer than `_at_us`.
        self._lags: dict[Pair, deque[int]] = {}

    def add(self, at_us: int, lags: Mapping[Pair, int]) -> None:
        """Add a sample. Pairs that are not in `lags` are forgotten."""
        self._at_us.append(at_us)
        self._lags = {
            pair: self._lags.get(pair) or deque(maxlen=limits.LAG_SAMPLES_KEPT) for pair in lags
        }
        for pair, lag in lags.items():
            self._lags[pair].append(lag)

    def of(self, group: str, topic_id: int) -> list[tuple[int, float]]:
        """Times and lags in records, oldest first; empty if the pair is not sampled."""
        lags = self._lags.get((group, topic_id), ())
        return [
            (at_us, float(lag))
            for at_us, lag in zip(
                list(self._at_us)[len(self._at_us) - len(lags) :], lags, strict=True
            )
        ]

    def largest(self, most: int) -> list[tuple[int, Pair]]:
        """The pairs that are furthest behind now, and their lags in records."""
        return nlargest(most, ((lags[-1], pair) for pair, lags in self._lags.items() if lags[-1]))


@dataclass(frozen=True, slots=True)
class TopicRate:
    """Mean rates per second. `bytes`: as stored."""

    records: float
    bytes: float


class TopicRates:
    """The append rates of topics during the last sample."""

    def __init__(self) -> None:
        self._seconds = 0.0  # 0: no sample yet
        self._came_in: Mapping[int, tuple[int, int]] = {}

    def add(self, seconds: float, came_in: Mapping[int, tuple[int, int]]) -> None:
        """Replace the sample. `came_in`: records and bytes appended in `seconds`, by topic id."""
        self._seconds, self._came_in = seconds, came_in

    def of(self, topic_id: int) -> TopicRate | None:
        """None before the first sample."""
        if not self._seconds:
            return None
        records, size_bytes = self._came_in.get(topic_id, (0, 0))
        return TopicRate(records / self._seconds, size_bytes / self._seconds)

    def busiest(self, most: int) -> list[int]:
        """The ids of the topics that got the most records."""
        found = ((records, topic_id) for topic_id, (records, _) in self._came_in.items() if records)
        return [topic_id for _, topic_id in nlargest(most, found)]

"""How the appliance was: a sample each 15 s, for a day, in memory. A restart begins anew.

A sample is what happened since the one before, so that nothing has to be subtracted to show it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from seb_appliance import limits


class Sample(msgspec.Struct, frozen=True, gc=False):
    """What happened in the `seconds` up to `at_us`; `size_bytes` are those of all topics then.
    Latencies are None when nothing was stored. About 400 bytes, so a day takes 2.3 MB."""

    at_us: int
    seconds: float
    records_in: int
    bytes_in: int
    entries: int
    records_out: int
    sections_at_hand: int  # from memory, or the cache on disk
    sections_fetched: int  # from the bucket
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


# How far groups were behind: with each sample, for an hour, in memory. A restart begins anew.
#
# `limits.LAGS_SAMPLED` pairs of group and topic are watched, in order of the groups' names.


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


# How much comes into each topic: in the last sample, in memory. A restart begins anew.


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

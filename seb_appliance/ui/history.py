"""Samples for the charts of the admin page.

`History` keeps the samples of a day, one each 15 s, and of 30 days, one each 15 min. `LagHistory`
keeps the lag of groups for an hour and `TopicRates` the newest rates of topics, both in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import pairwise
from typing import Final

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


_SECOND_US: Final = 1_000_000


def merged(samples: Sequence[Sample]) -> Sample:
    """One sample for the time of them all, oldest first; at least one. The median of latencies is
    the mean of theirs, weighted by entries."""
    if len(samples) == 1:
        return samples[0]
    timed = [(s.put_p50_s, s.entries or 1) for s in samples if s.put_p50_s is not None]
    return Sample(
        at_us=samples[-1].at_us,
        seconds=sum([s.seconds for s in samples]),
        records_in=sum([s.records_in for s in samples]),
        bytes_in=sum([s.bytes_in for s in samples]),
        entries=sum([s.entries for s in samples]),
        records_out=sum([s.records_out for s in samples]),
        sections_at_hand=sum([s.sections_at_hand for s in samples]),
        sections_fetched=sum([s.sections_fetched for s in samples]),
        bucket_requests=sum([s.bucket_requests for s in samples]),
        put_p50_s=sum(p50 * n for p50, n in timed) / sum(n for _, n in timed) if timed else None,
        put_p99_s=max((s.put_p99_s for s in samples if s.put_p99_s is not None), default=None),
        size_bytes=samples[-1].size_bytes,
    )


class _Ring:
    """A place for each step of time; a place is used again when all others were. So a clock that
    jumps makes nothing grow, and a sample of the future is replaced when its time has come."""

    def __init__(self, step_s: int, places: int) -> None:
        self.step_s, self.step_us = step_s, step_s * _SECOND_US
        self.samples: list[Sample | None] = [None] * places
        self.unsaved: set[int] = set()
        self._newest: int | None = None  # the step of the last sample since the start

    def add(self, sample: Sample) -> None:
        step = sample.at_us // self.step_us
        place = step % len(self.samples)
        before = self._at(step) if self._newest in (None, step) else None
        self.samples[place] = sample if before is None else merged([before, sample])
        self.unsaved.add(place)
        self._newest = step

    def _at(self, step: int) -> Sample | None:
        found = self.samples[step % len(self.samples)]
        return found if found is not None and found.at_us // self.step_us == step else None

    def between(self, from_us: int, until_us: int) -> list[Sample]:
        """Samples after `from_us` up to `until_us`, oldest first."""
        first = max(from_us, until_us - self.reach_us) // self.step_us
        steps = range(first, until_us // self.step_us + 1)
        found = [sample for step in steps if (sample := self._at(step)) is not None]
        return [sample for sample in found if from_us < sample.at_us <= until_us]

    @property
    def reach_us(self) -> int:
        return self.step_us * len(self.samples)


class History:
    """Samples may be read in other threads."""

    def __init__(self) -> None:
        fine = _Ring(limits.SAMPLE_EVERY_S, limits.SAMPLES_KEPT)
        coarse = _Ring(limits.COARSE_SAMPLE_EVERY_S, limits.COARSE_SAMPLES_KEPT)
        self._rings = {ring.step_s: ring for ring in (fine, coarse)}

    def add(self, sample: Sample) -> None:
        for ring in self._rings.values():
            ring.add(sample)

    def between(self, from_us: int, until_us: int) -> list[Sample]:
        """Samples after `from_us` up to `until_us`, oldest first: the finest that reach back so
        far."""
        rings = list(self._rings.values())
        reaching = [ring for ring in rings if ring.reach_us >= until_us - from_us]
        return (reaching or rings)[0 if reaching else -1].between(from_us, until_us)

    def newest(self, now_us: int) -> Sample | None:
        """None if there is none of the last minute."""
        found = self.between(now_us - 60 * _SECOND_US, now_us)
        return found[-1] if found else None

    def unsaved(self) -> list[SavedSample]:
        """What was added or changed, and not yet given to `mark_saved`."""
        return [
            (ring.step_s, place, sample)
            for ring in self._rings.values()
            for place in ring.unsaved
            if (sample := ring.samples[place]) is not None
        ]

    def mark_saved(self, rows: Iterable[SavedSample]) -> None:
        for step_s, place, sample in rows:
            ring = self._rings[step_s]
            if ring.samples[place] is sample:
                ring.unsaved.discard(place)

    def restore(self, rows: Iterable[SavedSample]) -> None:
        """Those of other steps are left out."""
        for step_s, place, sample in rows:
            ring = self._rings.get(step_s)
            if ring is not None and place < len(ring.samples):
                ring.samples[place] = sample


SavedSample = tuple[int, int, Sample]
"""Step in seconds, place in its ring, and the sample."""


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

    def growing(self, most: int, least: int) -> list[tuple[int, Pair]]:
        """The pairs whose lag has grown in each quarter of the last hour, or of the last half if
        there is no more, to `least` records or more; the furthest behind first."""
        found = []
        for pair, lags in self._lags.items():
            if len(lags) < limits.LAG_SAMPLES_KEPT // 2 or lags[-1] < least:
                continue
            quarters = [lags[(len(lags) - 1) * part // 4] for part in range(5)]
            if all(before < after for before, after in pairwise(quarters)):
                found.append((lags[-1], pair))
        return nlargest(most, found)


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

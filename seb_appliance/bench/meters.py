"""Counting what was done, over time."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

# Latencies: four bytes each while a run lasts, an HDR histogram afterwards.


LARGEST_US: Final = 3_600_000_000
DIGITS: Final = 3
PERCENTILES: Final = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999)


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of latencies, in µs. `at`: percentile and value, up to the largest one (100).
    A percentile closer to 100 than the samples reach has the largest value."""

    samples: int
    mean_us: float
    at: list[tuple[float, int]]

    def value_us(self, percentile: float) -> int:
        return next(value for p, value in self.at if p >= percentile)


class Latencies:
    """`add` is the hot path: one append."""

    def __init__(self) -> None:
        self._us = array("I")
        self._add = self._us.append

    def add(self, seconds: float) -> None:
        self._add(int(seconds * 1e6))

    def __len__(self) -> int:
        return len(self._us)

    def extend(self, others: Latencies) -> None:
        self._us.extend(others._us)

    def curve(self) -> Curve | None:
        """None without a sample."""
        from hdrh.histogram import HdrHistogram

        if not self._us:
            return None
        histogram = HdrHistogram(1, LARGEST_US, DIGITS)
        for microseconds, count in Counter(self._us).items():
            histogram.record_value(microseconds, count)
        found = histogram.get_percentile_to_value_dict([*PERCENTILES, 100.0])
        return Curve(
            samples=len(self._us),
            mean_us=round(histogram.get_mean_value(), 1),
            at=sorted((float(p), int(value)) for p, value in found.items()),
        )


What = Literal["acknowledged", "read", "end to end"]


@dataclass(slots=True)
class Mark:
    """The counts at one moment."""

    at_s: float
    requests: int
    records: int
    size_bytes: int


@dataclass(slots=True)
class Meter:
    """`requests` are answers; `latencies` are of requests (end to end: of records)."""

    what: What
    requests: int = 0
    records: int = 0
    size_bytes: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    marks: list[Mark] = field(default_factory=list)

    def count(self, records: int, size_bytes: int) -> None:
        self.requests += 1
        self.records += records
        self.size_bytes += size_bytes

    def mark(self, now_s: float) -> None:
        self.marks.append(Mark(now_s, self.requests, self.records, self.size_bytes))

"""Counting what was done, over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from seb_appliance.bench.latencies import Latencies

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

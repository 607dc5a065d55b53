"""What the broker counts. Plain integers, read at any time; nothing is written for them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from seb_appliance.formats.entry import Entry

# What `/metrics` shows of a field, and where the field is declared.


@dataclass(frozen=True, slots=True)
class Metric:
    """In the annotation of a field. A name that ends in `_total` is a counter's. `of_none`: the
    value where the field is None; None: no sample. A text counts as 1 unless it is empty."""

    name: str
    help: str
    of_none: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Literal["counter", "gauge"]:
        return "counter" if self.name.endswith("_total") else "gauge"


@dataclass(frozen=True, slots=True)
class Label:
    """In the annotation of a field that labels the metrics beside it."""

    name: str


# How long something took, counted in steps of a fourth of a doubling: what percentiles need.
#
# Counts only grow, so the difference of two readings tells of the time between them.


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


@dataclass(slots=True)
class Counters:
    entries: Annotated[int, Metric("seb_entries_total", "Journal entries stored.")] = 0
    entry_bytes: Annotated[
        int, Metric("seb_entry_bytes_total", "Bytes of journal entries stored.")
    ] = 0
    records: Annotated[int, Metric("seb_records_total", "Records acknowledged.")] = 0
    put_seconds: Annotated[
        float, Metric("seb_entry_seconds_total", "Seconds from seal to stored.")
    ] = 0.0
    puts: Latencies = field(default_factory=Latencies)  # the same, each for itself
    open_seconds: float = 0.0  # of the windows that became entries
    entry_shares: dict[int, float] = field(default_factory=dict)
    came_in: dict[int, tuple[int, int]] = field(default_factory=dict)
    plain_bytes: Annotated[
        int,
        Metric(
            "seb_compressed_plain_bytes_total",
            "Bytes of the batches that are stored compressed, before.",
        ),
    ] = 0  # of batches that were compressed, before
    packed_bytes: Annotated[
        int,
        Metric(
            "seb_compressed_bytes_total", "Bytes of the batches that are stored compressed, after."
        ),
    ] = 0  # … and after
    reads: Annotated[int, Metric("seb_reads_total", "Reads answered.")] = 0
    read_records: Annotated[int, Metric("seb_read_records_total", "Records handed to readers.")] = 0
    deadlines_passed: Annotated[
        int, Metric("seb_deadlines_total", "Callers told outcome_unknown.")
    ] = 0
    fetched_ahead: Annotated[
        int, Metric("seb_read_ahead_sections_total", "Sections fetched before they were asked for.")
    ] = 0  # sections
    index_lookups: Annotated[
        int, Metric("seb_index_lookups_total", "Pages of the index read from SQLite.")
    ] = 0  # pages of the index read from SQLite
    writes: Annotated[int, Metric("seb_writes_total", "Appends, commits and changes stored.")] = (
        0  # appends, commits and what operators do
    )
    live_encoded: Annotated[
        int, Metric("seb_live_encoded_total", "Records encoded for live streams.")
    ] = 0  # records, each once for all who follow at the log end

    def note_compressed(self, plain_bytes: int, packed_bytes: int) -> None:
        self.plain_bytes += plain_bytes
        self.packed_bytes += packed_bytes

    def note_entry(self, entry: Entry, writes: int, put_s: float, open_s: float) -> None:
        """`open_s`: how long its window was open, for so many `writes`."""
        sections = entry.contents.sections
        self.entries += 1
        self.writes += writes
        self.entry_bytes += entry.header.length
        self.records += sum(section.record_count for section in sections)
        self.put_seconds += put_s
        self.puts.add(put_s)
        self.open_seconds += open_s
        whole = sum(section.length for section in sections)
        for section in sections:
            before = self.entry_shares.get(section.topic_id, 0.0)
            self.entry_shares[section.topic_id] = before + section.length / whole
            records, size_bytes = self.came_in.get(section.topic_id, (0, 0))
            self.came_in[section.topic_id] = (
                records + section.record_count,
                size_bytes + section.length,
            )

    def take_entry_shares(self) -> dict[int, float]:
        """How many entries each topic (by id) has caused since this was last called: of an entry it
        has as much as of its bytes."""
        taken, self.entry_shares = self.entry_shares, {}
        return taken

    def take_came_in(self) -> dict[int, tuple[int, int]]:
        """Records and bytes, as stored, that came into each topic (by id) since this was last
        called; topics into which nothing came are left out."""
        taken, self.came_in = self.came_in, {}
        return taken


# How often something took how long, in a few steps: what a metrics server makes quantiles of.


BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """Seconds, by the first of `BOUNDS_S` that is not less; the last count is of those beyond."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Requests of one kind and purpose with one outcome: `ok`, or the name of the error's class.

    `seconds` is the time they took together. Sent are the bytes of PUT bodies, whatever became of
    them; received are those of GET bodies that came whole.
    """

    kind: Annotated[str, Label("kind")]
    outcome: Annotated[str, Label("outcome")]
    requests: Annotated[int, Metric("seb_store_requests_total", "Requests to the bucket.")] = 0
    bytes_sent: Annotated[
        int, Metric("seb_store_sent_bytes_total", "Bytes sent to the bucket.")
    ] = 0
    bytes_received: Annotated[
        int, Metric("seb_store_received_bytes_total", "Bytes received from it.")
    ] = 0
    seconds: Annotated[float, Metric("seb_store_seconds_total", "Seconds that they took.")] = 0.0
    purpose: Annotated[str, Label("purpose")] = "start"

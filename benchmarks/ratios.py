"""The table of what the appliance should do, as ratios: to a null server, to fsync, to itself.

    python benchmarks/ratios.py [--quick]

Where records a second are asked for (NDJSON, reading), the bound is that number over what a null
server did on the machine it was asked for. Every figure is measured beside what it is divided by.
A report: it ends with 1 only when a record was wrong or nothing could be measured, never because
something was slow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
QUICK = "--quick" in sys.argv[1:]
DURATION = "1s" if QUICK else "10s"

Json = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """`least` and `most`: what is asked for, of `value`; None when there is no such bound."""

    work: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    beside: str = ""

    @property
    def holds(self) -> bool:
        enough = self.least is None or self.value >= self.least
        return enough and (self.most is None or self.value <= self.most)


def bench(*options: str) -> Json:
    """One measurement on an appliance of its own. Raises SystemExit when it failed."""
    command = [sys.executable, "-m", "seb_appliance", "bench", *options, "--embedded", "--json"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{' '.join(command[1:])}\n{finished.stdout}{finished.stderr}")
    result: Json = json.loads(finished.stdout)
    return result


def against_null(work: str, least: float, *options: str) -> Figure:
    result = bench(*options, "--store", "memory", "--duration", DURATION, "--against", "null")
    ratios = result["against"]["ratios"]
    rate = result["rows"][0]["records_per_s"]
    return Figure(
        f"{work}, of a null server",
        result["against"]["median"],
        "x",
        least=least,
        beside=f"{min(ratios):.2f} to {max(ratios):.2f}; {rate:,.0f} records/s",
    )


def produce_single() -> Figure:
    return against_null("produce 1 x 1 KiB, 1,500 connections", 0.8, "produce", *connections(1500))


def produce_batch() -> Figure:
    body = ("--body", "batch", "--records-per-request", "32")
    return against_null(
        "produce 32 x 1 KiB as record batch, 256 connections",
        0.5,
        "produce",
        *body,
        *connections(256),
    )


def produce_ndjson() -> Figure:
    body = ("--body", "ndjson", "--records-per-request", "32", "--record-bytes", "256B")
    return against_null(
        "produce 32 x 256 B as NDJSON, 256 connections", 0.2, "produce", *body, *connections(256)
    )


def consume_batch() -> Figure:
    body = ("--body", "batch", "--records-per-request", "1024", "--record-bytes", "256B")
    return against_null(
        "consume 1,024 x 256 B as record batch", 0.3, "consume", *body, *connections(16)
    )


def consume_ndjson() -> Figure:
    body = ("--body", "ndjson", "--records-per-request", "1024", "--record-bytes", "256B")
    return against_null(
        "consume 1,024 x 256 B as NDJSON", 0.015, "consume", *body, *connections(16)
    )


def far_away() -> Figure:
    """One producer and a bucket 50 ms away: what comes on top of window and PUT."""
    far = ("--store-latency", "50ms", "--linger", "10ms")
    options = ("--store", "memory", "--duration", DURATION, *connections(1))
    result = bench("produce", *far, *options)
    return Figure(
        "one producer, bucket 50 ms away: p50 less window and PUT",
        percentile(result, "acknowledged", 50.0) / 1000 - 60,
        "ms",
        most=3.0,
    )


def end_to_end() -> Figure:
    result = bench(
        "e2e", "--preset", "1KiB@3000", "--linger", "1ms", "--duration", DURATION, "--store", "disk"
    )
    fsync = result["fsync"]
    p99_us = percentile(result, "end to end", 99.0)
    return Figure(
        "end to end p99 at 3,000/s, of 10 ms + 2 x fsync p99",
        p99_us / fsync["allowed_us"],
        "x",
        most=1.0,
        beside=f"{p99_us / 1000:.1f} ms; fsync p99 {fsync['p99_us'] / 1000:.1f} ms",
    )


def many_topics() -> Figure:
    """The same load on 10 and on 1,000 topics, in turn."""
    pairs: list[float] = []
    for _ in range(1 if QUICK else 3):
        few, many = (
            bench(
                "produce",
                *("--topics", str(topics), "--store", "memory", "--duration", DURATION),
                *connections(256),
            )
            for topics in (10, 1_000)
        )
        pairs.append(many["rows"][0]["requests_per_s"] / few["rows"][0]["requests_per_s"])
    return Figure(
        "produce to 1,000 topics, of the same to 10",
        sorted(pairs)[len(pairs) // 2],
        "x",
        least=0.75,
        beside=f"{min(pairs):.2f} to {max(pairs):.2f}",
    )


def peak_memory() -> Figure:
    """Of the heaviest of these, on a disk: a bucket in memory is memory of the appliance's."""
    heaviest = (
        ("produce", *connections(1_500)),
        ("produce", "--body", "batch", "--records-per-request", "32", *connections(256)),
        ("consume", "--body", "batch", "--records-per-request", "1024", *connections(16)),
    )
    disk = ("--store", "disk", "--duration", DURATION)
    peaks = [bench(*options, *disk)["appliance"]["peak_bytes"] for options in heaviest]
    return Figure("peak memory of the heaviest of these", max(peaks) / 2**20, "MiB", most=300)


def connections(count: int) -> tuple[str, str]:
    return "--connections", str(count)


def percentile(result: Json, what: str, wanted: float) -> int:
    row = next(row for row in result["rows"] if row["what"] == what)
    return next(int(value) for p, value in row["latency"]["at"] if p >= wanted)


FIGURES: tuple[Callable[[], Figure], ...] = (
    produce_single,
    produce_batch,
    produce_ndjson,
    consume_batch,
    consume_ndjson,
    far_away,
    end_to_end,
    many_topics,
    peak_memory,
)


def main() -> None:
    print(f"{'work':68} {'measured':>12} {'asked':>10}")
    for figure in (measure() for measure in FIGURES):
        asked = (
            f">= {figure.least:g}" if figure.least is not None else f"<= {figure.most:g}"
        ) + f" {figure.unit}"
        measured = f"{figure.value:,.2f} {figure.unit}"
        mark = " " if figure.holds else "!"
        print(f"{figure.work:68} {measured:>12} {asked:>10} {mark} {figure.beside}".rstrip())
        sys.stdout.flush()


if __name__ == "__main__":
    main()

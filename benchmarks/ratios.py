"""The table of what the appliance should do, as ratios: to a null server, to fsync, to itself on
S3 and on a disk.

    python benchmarks/ratios.py [--quick]

Where records a second are asked for (NDJSON, reading), the bound is that number over what a null
server did on the machine it was asked for. Every figure is measured beside what it is divided by.
A report: it ends with 1 only when a record was wrong or nothing could be measured, never because
something was slow.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.s3_server import STORE, s3_server  # noqa: E402 - as a script, from any directory

QUICK = "--quick" in sys.argv[1:]
DURATION = "1s" if QUICK else "10s"
ROUNDS = 1 if QUICK else 3
AGAINST_NULL = ("--against", "null")

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

    @property
    def asked(self) -> str:
        if self.least is not None:
            return f">= {self.least:g} {self.unit}"
        return "" if self.most is None else f"<= {self.most:g} {self.unit}"


def bench(*options: str, variables: dict[str, str] | None = None) -> Json:
    """One measurement on an appliance of its own. Raises SystemExit when it failed."""
    command = [sys.executable, "-m", "seb_appliance", "bench", *options, "--embedded", "--json"]
    environment = {**os.environ, **(variables or {})}
    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    if finished.returncode:
        raise SystemExit(f"{' '.join(command[1:])}\n{finished.stdout}{finished.stderr}")
    result: Json = json.loads(finished.stdout)
    return result


@dataclass(frozen=True)
class Work:
    """`of_null`: what is asked for, of a null server."""

    words: str
    of_null: float
    options: tuple[str, ...]

    def against_null(self) -> Figure:
        result = bench(*self.options, "--store", "memory", "--duration", DURATION, *AGAINST_NULL)
        ratios = result["against"]["ratios"]
        rate = result["rows"][0]["records_per_s"]
        return Figure(
            f"{self.words}, of a null server",
            result["against"]["median"],
            "x",
            least=self.of_null,
            beside=f"{min(ratios):.2f} to {max(ratios):.2f}; {rate:,.0f} records/s",
        )

    def on_s3(self) -> Figure:
        """In turn with the same on a disk."""

        def rate(store: str, variables: dict[str, str]) -> float:
            options = (*self.options, "--store", store, "--duration", DURATION)
            found: float = bench(*options, variables=variables)["rows"][0]["records_per_s"]
            return found

        pairs, rates = list[float](), list[float]()
        for _ in range(ROUNDS):
            with s3_server() as variables:
                rates.append(rate(STORE, variables))
                pairs.append(rates[-1] / rate("disk", variables))
        spread = f"{min(pairs):.2f} to {max(pairs):.2f}"
        return Figure(
            f"{self.words}, on S3, of the same on a disk",
            statistics.median(pairs),
            "x",
            least=0.8,
            beside=f"{spread}; {statistics.median(rates):,.0f} records/s",
        )


def connections(count: int) -> tuple[str, str]:
    return "--connections", str(count)


def body(kind: str, records: int, record_bytes: str) -> tuple[str, ...]:
    return (
        *("--body", kind),
        *("--records-per-request", str(records)),
        *("--record-bytes", record_bytes),
    )


WORKS = (
    Work("produce 1 x 1 KiB, 1,500 connections", 0.8, ("produce", *connections(1500))),
    Work(
        "produce 32 x 1 KiB as record batch, 256 connections",
        0.5,
        ("produce", *body("batch", 32, "1KiB"), *connections(256)),
    ),
    Work(
        "produce 32 x 256 B as NDJSON, 256 connections",
        0.2,
        ("produce", *body("ndjson", 32, "256B"), *connections(256)),
    ),
    Work(
        "consume 1,024 x 256 B as record batch",
        0.3,
        ("consume", *body("batch", 1024, "256B"), *connections(16)),
    ),
    Work(
        "consume 1,024 x 256 B as NDJSON",
        0.015,
        ("consume", *body("ndjson", 1024, "256B"), *connections(16)),
    ),
)


def far_away() -> Figure:
    """One producer and a bucket 50 ms away: what comes on top of window and PUT."""
    far = ("--store-latency", "50ms", "--linger", "10ms")
    options = ("--store", "memory", "--duration", DURATION, *connections(1))
    return _beyond_window_and_put("bucket", bench("produce", *far, *options))


def far_away_on_s3() -> Figure:
    options = ("--linger", "10ms", "--store", STORE, "--duration", DURATION, *connections(1))
    with s3_server(0.05) as variables:
        return _beyond_window_and_put("S3", bench("produce", *options, variables=variables))


def _beyond_window_and_put(where: str, result: Json) -> Figure:
    return Figure(
        f"one producer, {where} 50 ms away: p50 less window and PUT",
        percentile(result, "acknowledged", 50.0) / 1000 - 60,
        "ms",
        most=3.0,
    )


E2E = ("e2e", "--preset", "1KiB@3000", "--linger", "1ms", "--duration", DURATION)


def end_to_end() -> Figure:
    result = bench(*E2E, "--store", "disk")
    fsync = result["fsync"]
    p99_us = percentile(result, "end to end", 99.0)
    return Figure(
        "end to end p99 at 3,000/s, of 10 ms + 2 x fsync p99",
        p99_us / fsync["allowed_us"],
        "x",
        most=1.0,
        beside=f"{p99_us / 1000:.1f} ms; fsync p99 {fsync['p99_us'] / 1000:.1f} ms",
    )


def end_to_end_on_s3() -> Figure:
    with s3_server() as variables:
        result = bench(*E2E, "--store", STORE, variables=variables)
    return Figure(
        "end to end p99 at 3,000/s, on S3", percentile(result, "end to end", 99.0) / 1000, "ms"
    )


def many_topics() -> Figure:
    return _many_topics("", "memory", {})


def many_topics_on_s3() -> Figure:
    with s3_server() as variables:
        return _many_topics(", on S3", STORE, variables)


def _many_topics(where: str, store: str, variables: dict[str, str]) -> Figure:
    """The same load on 10 and on 1,000 topics, in turn."""
    pairs: list[float] = []
    options = ("--store", store, "--duration", DURATION, *connections(256))
    for _ in range(ROUNDS):
        few, many = (
            bench("produce", "--topics", str(topics), *options, variables=variables)
            for topics in (10, 1_000)
        )
        pairs.append(many["rows"][0]["requests_per_s"] / few["rows"][0]["requests_per_s"])
    return Figure(
        f"produce to 1,000 topics, of the same to 10{where}",
        statistics.median(pairs),
        "x",
        least=0.75,
        beside=f"{min(pairs):.2f} to {max(pairs):.2f}",
    )


def peak_memory() -> Figure:
    """On a disk: a bucket in memory is memory of the appliance's."""
    return Figure("peak memory of the heaviest of these", _peak_mib("disk", {}), "MiB", most=300)


def peak_memory_on_s3() -> Figure:
    with s3_server() as variables:
        peak_mib = _peak_mib(STORE, variables)
    return Figure("peak memory of the heaviest of these, on S3", peak_mib, "MiB", most=160)


def _peak_mib(store: str, variables: dict[str, str]) -> float:
    on = ("--store", store, "--duration", DURATION)
    heaviest = (WORKS[0], WORKS[1], WORKS[3])
    peaks = [
        bench(*work.options, *on, variables=variables)["appliance"]["peak_bytes"]
        for work in heaviest
    ]
    mib: float = max(peaks) / 2**20
    return mib


def percentile(result: Json, what: str, wanted: float) -> int:
    row = next(row for row in result["rows"] if row["what"] == what)
    return next(int(value) for p, value in row["latency"]["at"] if p >= wanted)


FIGURES: tuple[Callable[[], Figure], ...] = (
    *(figure for work in WORKS for figure in (work.against_null, work.on_s3)),
    far_away,
    far_away_on_s3,
    end_to_end,
    end_to_end_on_s3,
    many_topics,
    many_topics_on_s3,
    peak_memory,
    peak_memory_on_s3,
)


def main() -> None:
    print(f"{'work':72} {'measured':>12} {'asked':>10}")
    for figure in (measure() for measure in FIGURES):
        measured = f"{figure.value:,.2f} {figure.unit}"
        mark = " " if figure.holds else "!"
        print(f"{figure.work:72} {measured:>12} {figure.asked:>10} {mark} {figure.beside}".rstrip())
        sys.stdout.flush()


if __name__ == "__main__":
    main()

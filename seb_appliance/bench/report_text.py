"""The result for people, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from seb_appliance.bench.latencies import Curve
from seb_appliance.bench.result import Result, Row

BUSY_GENERATOR: Final = 0.95  # of a core: above, the figures may be the generator's own


def report(result: Result) -> str:
    lines = [f"seb bench {result.workload} ({result.target}): {result.title}"]
    for name, text in _lines(result):
        lines.append(f"  {name:<13} {text}")
    return "\n".join(lines)


def _lines(result: Result) -> Iterator[tuple[str, str]]:
    for row in result.rows:
        yield row.what, throughput(row)
        if row.latency is not None:
            yield from zip(("latency", "", ""), latency_lines(row.latency), strict=False)
    if result.appliance is not None:
        used = result.appliance
        bucket = " with its bucket" if used.holds_bucket else ""
        peak = f"{used.peak_bytes / 2**20:,.0f} MiB{bucket}"
        text = f"peak memory {peak}, {used.cpu_s:.2f} s of processor"
        if used.cpu_us_per_request is not None:
            text += f", {used.cpu_us_per_request:,.1f} µs a request"
        yield "appliance", text
    yield "generator", generator(result)
    if result.fsync is not None:
        verdict = {True: "held", False: "not held", None: ""}[result.fsync.held]
        yield (
            "fsync",
            f"p99 {duration(result.fsync.p99_us)} of {result.fsync.samples:,}; 10 ms + 2 of these: "
            f"{duration(result.fsync.allowed_us)} {verdict}".rstrip(),
        )
    if result.against is not None:
        ratios = result.against.ratios
        spread = f"({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} pairs of slices)"
        yield "ratio", f"{result.against.median:.2f} of a {result.against.server} server {spread}"
    if troubles := trouble_words(result):
        yield "troubles", troubles
    yield "verified", verified_words(result)
    if result.verified is not None:
        for mistake in result.verified.mistakes:
            yield "", mistake
    if not result.is_whole:
        yield "note", result.failure or "ended early: what was measured until then"


def throughput(row: Row) -> str:
    return (
        f"{row.requests_per_s:,.0f} requests/s, {row.records_per_s:,.0f} records/s, "
        f"{row.bytes_per_s / 2**20:,.1f} MiB/s"
    )


def latency_lines(curve: Curve) -> list[str]:
    shown = [f"p{p:g} {duration(value)}" for p, value in curve.at if p < 100]
    shown.append(f"max {duration(curve.at[-1][1])}")
    return ["  ".join(shown[:5]), "  ".join(shown[5:])]


def duration(microseconds: int) -> str:
    """Three digits or so, in the unit that a person would take."""
    if microseconds < 1_000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.3g} ms" if microseconds < 999_500 else "1 s"
    return f"{microseconds / 1_000_000:.3g} s"


def generator(result: Result) -> str:
    text = f"{result.generator_cpu:.2f} of a core"
    if result.generator_cpu > BUSY_GENERATOR:
        text += " - it was busy: the figures may be its own"
    return text


def trouble_words(result: Result) -> str:
    told = [f"{count:,} refused ({code})" for code, count in sorted(result.refused.items())]
    if result.lost:
        told.append(f"{result.lost:,} without an answer")
    if result.late:
        told.append(f"{result.late:,} sent late (no connection was free)")
    if result.generator_late:
        told.append(f"{result.generator_late:,} sent late (the load generator had no processor)")
    if result.not_sent:
        told.append(f"{result.not_sent:,} were due and never sent")
    return ", ".join(told)


def verified_words(result: Result) -> str:
    if result.verified is None:
        return "no"
    if result.verified.wrong:
        return f"{result.verified.records:,} records: {result.verified.wrong:,} MISTAKES"
    return f"{result.verified.records:,} records: count, order, offsets and content are right"

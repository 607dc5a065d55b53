"""What a measurement found, as `--json` shows it and the reports tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

import msgspec

from seb_appliance.bench.accounts import Findings
from seb_appliance.bench.machine import Machine, this_machine
from seb_appliance.bench.meters import Curve, Latencies, Mark, Meter
from seb_appliance.bench.plan import Plan
from seb_appliance.bench.producing import Outcome
from seb_appliance.bench.targets import Target

SHORTEST_S: Final = 0.01  # between two marks whose rate is told


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of work. `over_time`: (seconds since measuring began, records a second)."""

    what: str
    seconds: float
    requests: int
    records: int
    size_bytes: int
    requests_per_s: float
    records_per_s: float
    bytes_per_s: float
    latency: Curve | None
    over_time: list[tuple[float, float]]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were looked at, and how many things were wrong; `mistakes`: the first ones."""

    records: int
    wrong: int
    mistakes: list[str]


class Appliance(msgspec.Struct, frozen=True, kw_only=True):
    """An embedded appliance: all of its life's peak, and processor time of the measured part.
    `holds_bucket`: its memory is also the bucket."""

    holds_bucket: bool
    peak_bytes: int
    cpu_s: float
    cpu_us_per_request: float | None


class Fsync(msgspec.Struct, frozen=True, kw_only=True):
    """fsync of small files in the bucket's directory during the run. `allowed_us`: what a record
    may take from producer to consumer at p99, 10 ms and twice this."""

    samples: int
    p99_us: int
    allowed_us: int
    held: bool | None  # None: nothing was measured end to end


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """Slices that alternate with those against another server; ratios of requests a second."""

    server: str
    requests_per_s: list[float]
    ratios: list[float]
    median: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    workload: str
    title: str
    target: str
    started: str
    is_whole: bool  # it was not interrupted
    configuration: dict[str, str | int | float | None]
    machine: Machine
    rows: list[Row]
    refused: dict[str, int]
    lost: int
    late: int  # sent more than 5 ms after they were due, because no connection was free
    generator_late: int  # the same, because the load generator got no processor
    not_sent: int  # due, and never sent
    failure: str | None
    generator_cpu: float  # cores
    verified: Verified | None
    appliance: Appliance | None = None
    fsync: Fsync | None = None
    against: Against | None = None

    @property
    def is_right(self) -> bool:
        return self.verified is None or not self.verified.wrong


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run has counted. `findings` None: nothing was verified."""

    meters: list[Meter]
    outcome: Outcome
    findings: Findings | None
    generator_cpu: float


def row_of(meters: Sequence[Meter]) -> Row | None:
    """What was done between the first and the last mark of each, one after the other; None when
    nothing was measured."""
    latencies = Latencies()
    over_time: list[tuple[float, float]] = []
    total = Mark(0.0, 0, 0, 0)
    for meter in meters:
        if len(meter.marks) < 2:
            continue
        first, last = meter.marks[0], meter.marks[-1]
        for a, b in pairwise(meter.marks):
            if b.at_s - a.at_s > SHORTEST_S:
                at_s = total.at_s + b.at_s - first.at_s
                rate = (b.records - a.records) / (b.at_s - a.at_s)
                over_time.append((round(at_s, 3), round(rate, 1)))
        total = Mark(
            total.at_s + last.at_s - first.at_s,
            total.requests + last.requests - first.requests,
            total.records + last.records - first.records,
            total.size_bytes + last.size_bytes - first.size_bytes,
        )
        latencies.extend(meter.latencies)
    if not total.at_s:
        return None
    return Row(
        what=meters[0].what,
        seconds=round(total.at_s, 4),
        requests=total.requests,
        records=total.records,
        size_bytes=total.size_bytes,
        requests_per_s=round(total.requests / total.at_s, 1),
        records_per_s=round(total.records / total.at_s, 1),
        bytes_per_s=round(total.size_bytes / total.at_s, 1),
        latency=latencies.curve(),
        over_time=over_time,
    )


def verified_of(findings: Findings) -> Verified:
    return Verified(records=findings.records, wrong=findings.wrong, mistakes=findings.mistakes)


def merged(outcomes: list[Outcome]) -> Outcome:
    whole = Outcome()
    for outcome in outcomes:
        whole.refused.update(outcome.refused)
        whole.lost += outcome.lost
        whole.late += outcome.late
        whole.generator_late += outcome.generator_late
        whole.not_sent += outcome.not_sent
        whole.failure = whole.failure or outcome.failure
    return whole


def result_of(
    plan: Plan, target: Target, started: datetime, slices: Sequence[Measured], stopped: bool
) -> Result:
    """One result of a run, or of several slices of one."""
    outcome = merged([one.outcome for one in slices])
    findings = Findings()
    for one in slices:
        findings.add(one.findings or Findings())
    is_verified = all(one.findings is not None for one in slices)
    alike = zip(*(one.meters for one in slices), strict=True)
    return Result(
        workload=plan.workload,
        title=plan.title,
        target=target.name,
        started=started.isoformat(timespec="seconds"),
        is_whole=not stopped and outcome.failure is None,
        configuration=dataclasses.asdict(plan),
        machine=this_machine(),
        rows=[row for meters in alike if (row := row_of(meters)) is not None],
        refused=dict(outcome.refused),
        lost=outcome.lost,
        late=outcome.late,
        generator_late=outcome.generator_late,
        not_sent=outcome.not_sent,
        failure=None if outcome.failure is None else str(outcome.failure),
        generator_cpu=round(sum(one.generator_cpu for one in slices) / len(slices), 3),
        verified=verified_of(findings) if is_verified else None,
    )

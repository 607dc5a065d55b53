"""A part of the proof is done in units: each ends with a verdict, is noted in a file, and is not
done again when the part goes on later."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from tests.proof.ground import Ground
from tests.proof.results import ROOT, Result, Verdict
from tests.support.servers.s3_server import NotInstalledError

Scale = Literal["quick", "full", "long"]
"""`long` takes days: its units are done in pieces, on any machine, and their notes are in git."""
AT_ONCE: Final = 3
"""Units beside one another, on two cores: one waits for a start or a time-out now and then."""
_SAMPLE_MAX: Final = 100


class Done(msgspec.Struct):
    """What one unit did. `latencies_ms` is a sample of the acknowledged writes; of `numbers` a
    name that begins with `max ` is a maximum, any other a sum. `judged`: operations that each judge
    of another project found nothing wrong with; `not_judged`: why one is not there. `skipped`: why
    the unit was not done."""

    unit: str
    date: str = ""
    commit: str = ""
    seconds: float = 0.0
    calls: int = 0
    acknowledged: int = 0
    faults: dict[str, int] = {}
    latencies_ms: list[float] = []
    memory_mib: list[tuple[float, float]] = []
    numbers: dict[str, float] = {}
    judged: dict[str, int] = {}
    not_judged: dict[str, str] = {}
    failure: str = ""
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return not self.failure and not self.skipped

    @classmethod
    def of(cls, unit: str, ground: Ground, **numbers: float) -> Done:
        """What happened on a ground whose verdict was good."""
        crowd = ground.crowd
        dice = random.Random(unit)
        if ground.lake is not None:
            numbers["commits_of_lake_tables"] = ground.lake.commits
            numbers["looks_at_lake_tables"] = ground.lake.looks
        handled = sum(call.results.count("ok") for call in crowd.history.queue_calls)
        if handled:
            numbers["deliveries_ended_in_a_queue"] = handled
            numbers["dead_letters"] = len(crowd.history.dead_letters)
        if undecided := sum(one.undecided for one in ground.opinions):
            numbers["operations_that_a_judge_could_not_decide"] = undecided
        sample = dice.sample(crowd.latencies_s, min(_SAMPLE_MAX, len(crowd.latencies_s)))
        return cls(
            unit,
            calls=crowd.history.calls_made,
            acknowledged=crowd.acked,
            faults=dict(ground.faults),
            latencies_ms=[round(seconds * 1000, 2) for seconds in sample],
            numbers={name.replace("_", " "): value for name, value in numbers.items()},
            judged={one.judge: one.operations for one in ground.opinions if not one.absent},
            not_judged={one.judge: one.absent for one in ground.opinions if one.absent},
        )


@dataclass(frozen=True)
class PartOfProof:
    """`run` does one unit, by its name, the seed and a folder of its own. Raises AssertionError,
    and NotInstalledError where a program is not on this machine: the unit is told as skipped.
    `beside`: it measures neither time nor memory, so its units may run beside others. A scale that
    is not in `units` does not have this part."""

    name: str
    what: str
    asked: dict[Scale, str]
    units: dict[Scale, Sequence[str]]
    run: Callable[[str, str, Path], Awaitable[Done]]
    beside: bool = False


class Told(Protocol):
    """Who is told how far a run is."""

    def begins(self, parts: Sequence[PartOfProof]) -> None:
        """They are done now, beside one another."""

    def ended(self, found: Result) -> None:
        """A part is over."""


async def run_parts(
    parts: Sequence[PartOfProof],
    scale: Scale,
    seed: str,
    folder: Path,
    told: Told,
    notes: Path,
    until_s: float | None = None,
) -> None:
    """Do the parts: first those that stand beside others, together, then one after the other those
    that measure. After `until_s` (monotonic) no further unit is begun. `notes`: the folder of what
    is noted of each unit; `folder`: where they run."""
    beside = [part for part in parts if part.beside]
    for group in ([beside] if beside else []) + [[part] for part in parts if not part.beside]:
        told.begins(group)
        slots = asyncio.Semaphore(AT_ONCE if group is beside else 1)  # taken in order

        async def run(part: PartOfProof, slots: asyncio.Semaphore = slots) -> None:
            told.ended(await run_part(part, scale, seed, folder, notes, until_s, slots))

        await asyncio.gather(*map(run, group))


async def run_part(
    part: PartOfProof,
    scale: Scale,
    seed: str,
    folder: Path,
    notes: Path,
    until_s: float | None = None,
    slots: asyncio.Semaphore | None = None,
) -> Result:
    """Do the units that were not done with this seed, as there are `slots` (one by one without);
    what all of them amount to. After a failure, and after `until_s`, no further one is begun."""
    notes.mkdir(parents=True, exist_ok=True)
    noted = notes / f"{part.name}.{scale}.{seed}.jsonl"
    done = {found.unit: found for found in _read(noted) if found.passed}
    failed: list[str] = []
    slots = slots or asyncio.Semaphore()

    async def work(unit: str) -> None:
        async with slots:
            if failed or (until_s is not None and time.monotonic() >= until_s):
                return
            found = await _one(part, unit, seed, folder / "ground" / f"{part.name}-{unit}")
        with noted.open("ab") as file:
            file.write(msgspec.json.encode(found) + b"\n")
        done[unit] = found
        if found.failure:
            failed.append(unit)

    await asyncio.gather(*(work(unit) for unit in part.units[scale] if unit not in done))
    return _result(part, scale, seed, list(done.values()))


async def _one(part: PartOfProof, unit: str, seed: str, ground: Path) -> Done:
    began_s = time.monotonic()
    commit, date = head(), f"{datetime.now(UTC):%Y-%m-%d}"
    try:
        found = await part.run(unit, seed, ground)
    except NotInstalledError as missing:
        found = Done(unit, skipped=str(missing))
    except Exception as error:
        found = Done(unit, failure=f"{type(error).__name__}: {error}"[:4000])
    else:
        shutil.rmtree(ground, ignore_errors=True)  # of a failure, everything stays
    found.unit = unit  # by which it is not done again; a schedule has a name of its own
    found.seconds = round(time.monotonic() - began_s, 2)
    found.commit, found.date = commit, date
    return found


def head() -> str:
    """The commit that is checked out, or nothing where there is no git."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def _read(notes: Path) -> list[Done]:
    """A line that a kill has cut short is no unit."""
    found = []
    for line in notes.read_bytes().splitlines() if notes.exists() else ():
        try:
            found.append(msgspec.json.decode(line, type=Done))
        except msgspec.DecodeError:
            continue
    return found


def _result(part: PartOfProof, scale: Scale, seed: str, done: list[Done]) -> Result:
    units = part.units[scale]
    failures = [f"{found.unit}: {found.failure}" for found in done if found.failure]
    skipped = {found.unit: found.skipped for found in done if found.skipped}
    passed = sum(found.passed for found in done)
    verdict: Verdict = "failed" if failures else "passed" if passed == len(units) else "cut short"
    faults: Counter[str] = Counter()
    numbers: dict[str, float] = {}
    for found in done:
        faults.update(found.faults)
        for name, number in found.numbers.items():
            biggest = name.startswith("max ")
            numbers[name] = max(numbers.get(name, number), number) if biggest else (
                numbers.get(name, 0) + number)  # fmt: skip
    judged: Counter[str] = Counter()
    for found in done:
        judged.update(found.judged)
    not_judged = {name: why for found in done for name, why in found.not_judged.items()}
    calls, acknowledged = sum(f.calls for f in done), sum(f.acknowledged for f in done)
    got = f"{passed} of {len(units)} units, {calls:,} calls"
    if acknowledged:
        got += f", {acknowledged:,} writes acknowledged"
    if faults:
        got += f", {sum(faults.values()):,} faults"
    got += "".join(
        f"; {name}: {count:,} operations, no violation" for name, count in judged.items()
    )
    got += "".join(f"; not judged by {name}: {why}" for name, why in not_judged.items())
    if skipped:
        got += f"; skipped: {', '.join(skipped)}"
    details: dict[str, Any] = {"operations": calls}
    details |= {"acknowledged writes": acknowledged} if acknowledged else {}
    details |= {name: round(number, 3) for name, number in numbers.items()}
    if done:
        details["units by commit"] = dict(Counter(found.commit for found in done))
        details["units by day"] = dict(Counter(found.date for found in done))
    latencies = sorted(ms for found in done for ms in found.latencies_ms)
    if latencies:
        details["latencies_ms"] = {
            f"p{percent:g}": latencies[min(len(latencies) - 1, int(len(latencies) * percent / 100))]
            for percent in (50, 90, 99, 100)
        }
    details |= {"judged operations": dict(judged)} if judged else {}
    details |= {"faults": dict(faults.most_common())} if faults else {}
    memory = [point for found in done for point in found.memory_mib]
    details |= {"memory_mib": memory} if memory else {}
    details |= {"findings": failures} if failures else {}
    details |= {"skipped": skipped} if skipped else {}
    return Result(
        name=part.name,
        what=part.what,
        asked=part.asked[scale],
        got=got,
        verdict=verdict,
        seconds=round(sum(found.seconds for found in done), 1),
        seed=seed,
        details=details,
    )

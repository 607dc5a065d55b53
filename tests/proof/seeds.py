"""Seeds of the simulation, up to a thousand in a unit."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Final, cast

from tests.proof.units import Done, PartOfProof
from tests.simulation.parts import in_parts
from tests.simulation.seeds import Kind

_SEEDS: Final[dict[Kind, int]] = {
    "plain": 780_000,
    "sqlite": 20_000,
    "streams": 150_000,
    "doors": 50_000,
}
_IN_A_UNIT: Final = {"plain": 1_000, "sqlite": 100, "streams": 1_000, "doors": 100}


async def run(unit: str, seed: str, folder: Path) -> Done:
    """`CLASS-FIRST`: as many as a unit of the class has, from this one on."""
    kind = cast("Kind", unit.split("-")[0])
    first = int(unit.split("-")[1])
    seeds = range(first, first + _IN_A_UNIT[kind])
    return await asyncio.to_thread(_run, unit, seeds, kind)


def _run(unit: str, seeds: range, kind: Kind) -> Done:
    calls, faults = 0, Counter[str]()
    failed: list[str] = []
    # With one job they would run in this process, whose limits they replace.
    for outcomes, _ in in_parts(seeds, max(2, os.cpu_count() or 1), kind):
        for outcome in outcomes:
            calls += outcome.calls
            faults += outcome.faults
            failed += [f"--seed {outcome.seed}: {found}" for found in outcome.violations]
    assert not failed, f"python -m tests.simulation --class {kind} " + "\n".join(failed)
    numbers = {f"seeds, {kind}": float(len(seeds))}
    return Done(unit, calls=calls, faults=dict(faults), numbers=numbers)


def _units() -> list[str]:
    """By turns of the classes, so that each piece has some of all."""
    return [
        f"{kind}-{first}"
        for _, kind, first in sorted(
            (first / count, kind, first)
            for kind, count in _SEEDS.items()
            for first in range(0, count, _IN_A_UNIT[kind])
        )
    ]


SIMULATION = PartOfProof(
    "simulation", "seeds of the simulation", {"long": "1,000,000 seeds"}, {"long": _units()}, run
)

"""Executions of the decoders, a decoder in a unit."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Final

from tests.fuzz.campaign import Campaign
from tests.fuzz.registry import TARGETS
from tests.proof.units import Done, PartOfProof

_RUNS: Final = 1_000_000


async def run(unit: str, seed: str, folder: Path) -> Done:
    """The name of a target. How far it is is kept beside the unit's folder, so a unit that was
    interrupted continues on the same machine."""
    campaign = _campaign(folder.parent / "fuzz", int(seed))
    done = await asyncio.to_thread(campaign.run, TARGETS[unit], _RUNS)
    assert not done.findings, "\n".join(done.findings)
    return Done(unit, calls=done.executions, numbers={"max executions of a decoder": _RUNS})


@cache
def _campaign(folder: Path, seed: int) -> Campaign:
    """One for all units: its process imports the appliance once."""
    return Campaign(folder, seed=seed)


FUZZING = PartOfProof(
    "fuzz",
    "executions of each decoder",
    {"long": f"{_RUNS:,} each"},
    {"long": sorted(TARGETS, key=lambda name: TARGETS[name].is_slow)},
    run,
)

"""Kill -9 at each named point of the way to an acknowledgement, of a start and of a stop. Those of
the tidier, K16 to K18, have a run of their own in tests/crash/test_tidying.py."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import cast

from seb_appliance.storage.layout import Mode
from tests.proof.ground import PLACES, START_S, Ground, ground
from tests.proof.units import Done, PartOfProof
from tests.support.process import SebProcess

# The start's own store test passes K4 to K6, too: about 30 times, in mode B 230 times.
_PUTS_OF_A_START = {"A": 50, "B": 260}
_PASSES = {"1": 4, "2": 9, "3": 21}
_ONLY_ON_S3 = {"K12", "K13"}  # a directory needs no cache
_UNDER_LOAD = [f"K{n}" for n in range(1, 14)]
_AT_A_START = ["K19", "K20"]
_AT_A_STOP = ["K14", "K15"]


async def _die_at(here: Ground, point: str, position: int, *, fresh: bool) -> None:
    """Start an appliance that dies at `point`, and do what leads there."""
    passes = position
    if point in {"K4", "K5", "K6"}:
        passes += _PUTS_OF_A_START[here.arena.mode]
    elif point in _AT_A_STOP + _AT_A_START:
        passes = 1
    fresh = fresh or point == "K20"  # there is something to replay
    fail = f"{point}:kill:{passes}"
    # Who died in a start without a disk does not know yet that the bucket is his.
    seb = here.seb = here.arena.start("first", fresh=fresh, take_over=True, fail=fail)
    here.serve_from(seb)
    if point in _AT_A_STOP:
        await seb.ready(START_S)
        await here.crowd.until_acked(5)
        seb.process.terminate()
    assert await _ended(here, seb) == -9, (point, seb.shown)
    here.faults[f"killed at {point}"] += 1


async def _ended(here: Ground, seb: SebProcess) -> int:
    until_s = time.monotonic() + START_S
    while (code := seb.process.poll()) is None:
        here.require_workers()
        assert time.monotonic() < until_s, seb.shown
        await asyncio.sleep(0.01)
    return code


async def run(unit: str, seed: str, folder: Path) -> Done:
    """`MODE-PLACE-POSITION`: at the how manieth pass it dies."""
    mode, place, position = unit.split("-")
    points = [*_UNDER_LOAD, *_AT_A_START, *_AT_A_STOP]
    if place == "directory":
        points = [point for point in points if point not in _ONLY_ON_S3]
    async with ground(cast("Mode", mode), folder, f"{seed}/{unit}", PLACES[place]) as here:
        await here.begin(queue_workers=2)
        here.seb.kill()
        for i, point in enumerate(points):
            await _die_at(here, point, _PASSES[position], fresh=(i + int(position)) % 2 == 1)
        shutil.rmtree(here.seb.data, ignore_errors=True)
        await here.restart(fresh=True)
        await here.crowd.until_acked(5)
        await here.verdict()
        return Done.of(unit, here)


_PAIRS = ["A-S3", "B-directory", "B-S3", "A-directory"]
FAILPOINTS = PartOfProof(
    "failpoints",
    "kill -9 at K1 to K15, K19 and K20, in both fencing modes",
    {"quick": "each at 1 position", "full": "each at 3 positions, on S3 and on a directory"},
    {
        "quick": [f"{pair}-1" for pair in _PAIRS[:2]],
        "full": [f"{pair}-{position}" for position in "123" for pair in _PAIRS],
    },
    run,
    beside=True,
)

"""Kill -9 at random moments under load, with and without what was on the disk, by HTTP and Kafka.
On S3 the tidier merges and compacts all the while."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import cast

from seb_appliance.storage.layout import Mode
from tests.proof.ground import EAGER, PLACES, ground
from tests.proof.units import Done, PartOfProof

_PAUSE_S_MAX = 0.5
_LONG_PAUSE_S_MAX = 3.0  # in which tables are written, too


async def run(unit: str, seed: str, folder: Path) -> Done:
    """`MODE-PLACE-CYCLES-NUMBER`; with `gone` at the end the disk is gone each time."""
    mode, place, cycles, number = unit.split("-")[:4]
    dice = random.Random(f"{seed}/{unit}")
    async with ground(cast("Mode", mode), folder, f"{seed}/{unit}", PLACES[place]) as here:
        here.flags = EAGER if place == "S3" else ()
        await here.begin(tables=True, queue_workers=2, by_kafka=True)
        for i in range(int(cycles)):
            await asyncio.sleep(dice.uniform(0, _LONG_PAUSE_S_MAX if i % 2 else _PAUSE_S_MAX))
            fresh = unit.endswith("gone") or (number == "0" and i % 4 == 3)
            await here.kill(fresh=fresh)
        await here.verdict()
        return Done.of(unit, here)


_PAIRS = [("A", "S3"), ("B", "directory"), ("B", "S3"), ("A", "directory")]
KILLS = PartOfProof(
    "kills",
    "kill -9 under load: no acknowledged record is lost or duplicated",
    {
        "quick": "20 kills",
        "full": "400 kills, and 100 with the disk gone",
        "long": "1,000 kills, and 200 with the disk gone",
    },
    {
        "quick": ["A-S3-10-0", "B-directory-10-0"],
        "full": [
            *(f"{mode}-{place}-20-{number}" for number in range(1, 6) for mode, place in _PAIRS),
            *(f"{mode}-{place}-25-{6 + i}-gone" for i, (mode, place) in enumerate(_PAIRS)),
        ],
        # By turns, so that each piece has some of all.
        "long": [
            unit
            for number in range(1, 11)
            for mode, place in _PAIRS
            for unit in (f"{mode}-{place}-25-{number}", f"{mode}-{place}-5-{number}-gone")
        ],
    },
    run,
    beside=True,
)

"""The store is away for a while, under load: memory is bounded, nothing is lost, and soon after it
is back there are acknowledgements again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.proof.ground import ground
from tests.proof.units import Done, PartOfProof
from tests.proof.watching import MIB, Memory, steady
from tests.proof.workers import commit, produce_again, read
from tests.support.faultproxy import Rule

RECORDS_PER_S = 500
MEMORY_BYTES_MAX = 400_000_000
BACK_S_MAX = 5.0


async def run(unit: str, seed: str, folder: Path) -> Done:
    """The unit is the seconds for which the store is away."""
    seconds = float(unit)
    async with ground("A", folder, seed) as here:
        assert here.arena.proxy is not None
        here.crowd.pace_s = 0
        await here.begin({produce_again: 1, read: 2, commit: 1})
        here.add(steady(here.crowd, RECORDS_PER_S))
        await asyncio.sleep(3)
        memory = Memory()
        watching = asyncio.create_task(memory.watch(here.seb))
        here.arena.proxy.add(Rule("status", code=503))
        gone_s = time.monotonic()
        while time.monotonic() < gone_s + seconds:
            here.require_workers()
            await asyncio.sleep(0.5)
        here.arena.proxy.clear()
        back_s = time.monotonic()
        await here.crowd.until_acked(1)
        first_ack_s = time.monotonic() - back_s
        await here.crowd.until_acked(50)
        watching.cancel()
        print(f"{memory.peak_mib:.0f} MiB at most, first acknowledgement {first_ack_s:.1f} s after")
        assert memory.peak_mib * MIB < MEMORY_BYTES_MAX, memory.peak_mib
        assert first_ack_s < BACK_S_MAX, first_ack_s
        await here.verdict()
        done = Done.of(unit, here)
        done.numbers = {"max memory, MB": memory.peak_mib * MIB / 1e6,
                        "max first acknowledgement after, s": first_ack_s}  # fmt: skip
        done.memory_mib = memory.points[:: max(1, len(memory.points) // 300)]
        return done


AWAY = PartOfProof(
    "store-away",
    "store unavailable under 500 records/s; at most 400 MB, first acknowledgement within 5 s",
    {"quick": "20 s", "full": "10 minutes"},
    {"quick": ["20"], "full": ["600"]},
    run,
)

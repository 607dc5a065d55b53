"""All but the bucket is lost, with a million records in it: how long until it serves again."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path

from tests.proof.calling import Caller
from tests.proof.ground import START_S, ground
from tests.proof.history import Part, Record, Write
from tests.proof.units import Done, PartOfProof
from tests.proof.workers import CREW, TOPICS, Chain, as_json
from tests.support.process import starting_anew

RECOVERY_S_MAX = 10.0
"""Of processor time, which on a machine that does nothing else is the time it takes."""
_PER_REQUEST = 2_000


async def run(unit: str, seed: str, folder: Path) -> Done:
    """The unit is the number of records."""
    records = int(unit)
    async with ground("A", folder, seed) as here:
        await here.begin(CREW)
        caller, chain = Caller(here.crowd, "filler", timeout_s=60), Chain("filler")
        for n in range(records // _PER_REQUEST):
            part = Part(TOPICS[n % 2], tuple(Record(chain.next()) for _ in range(_PER_REQUEST)))
            write = Write(*caller.begin(), parts=(part,))
            here.crowd.history.writes.append(write)
            body = json.dumps({"records": as_json(part.records)}).encode()
            told = await caller.make(write, "POST", f"/v1/topics/{part.topic}/records", body)
            assert told is not None, write.answer
            part.offset = told["offset"]
        caller.close()
        here.crowd.history.gone_home.add("filler")
        here.seb.kill()
        shutil.rmtree(here.seb.data)
        here.faults["everything but the bucket lost"] += 1
        here.crowd.refused_s = 0.5  # nobody is there: leave the processor to who starts
        await asyncio.sleep(0.5)
        with starting_anew():  # as users do, whom the figure is for
            here.seb = here.arena.start("first", take_over=True)
        seconds = await here.seb.ready(START_S)
        busy_s = here.seb.processor_s()
        here.serve_from(here.seb)
        acked_s = time.monotonic()
        await here.crowd.until_acked(1)
        acked_s = time.monotonic() - acked_s
        print(
            f"{records:,} records: ready after {seconds:.1f} s, acknowledged {acked_s:.1f} s later"
        )
        assert seconds < RECOVERY_S_MAX, seconds
        await here.verdict()
        done = Done.of(unit, here)
        done.numbers = {"records": records, "max seconds until ready": seconds,
                        "max seconds of processor until ready": busy_s}  # fmt: skip
        return done


RECOVERY = PartOfProof(
    "recovery",
    "recovery from the bucket alone; afterwards seb fsck --full finds nothing",
    {"quick": "50,000 records in 10 s", "full": "1,000,000 records in 10 s"},
    {"quick": ["50000"], "full": ["1000000"]},
    run,
)

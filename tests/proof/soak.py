"""Half of what this machine can take, a fault every 30 s; memory, files and latency meanwhile."""

from __future__ import annotations

import asyncio
import random
import re
import time
from pathlib import Path

from seb_appliance.storage.layout import Mode
from tests.proof.calling import Crowd
from tests.proof.ground import Ground, ground
from tests.proof.units import Done, PartOfProof
from tests.proof.watching import PER_REQUEST, Memory, steady
from tests.support.faultproxy import Rule

_PEAK_S = 4.0
_PEAK_ASKED = 50_000  # records a second, more than one process of ours can send
_LONG_S = 600.0
GROWTH_MIB_MAX = {"short": 100.0, "long": 24.0}
"""In the last quarter, or three times as much as the measured points scatter. Before that a run
still fills its index and its caches, which have limits of their own; a short one does so to its
end."""
_MEASURED = 0.25  # of the run
_DRIFT_MAX = 1.3
"""Processor time for each acknowledged write in the last quarter, as a multiple of the first
quarter's. The latency itself says more of who else uses the machine."""
_MORE_FILES_MAX = 20
"""Open files and sockets of the last quarter, at their fewest, beyond those of the first."""

EXPECTED = re.compile(
    r"registercall: (topic_not_found|lease_held|stale_generation)|commit: offset_conflict|"
    r"(write|read|commit|keycall|registercall): "
    r"(20[0-9]|lost|not sent|outcome_unknown|store_unavailable|overloaded|share_exceeded|"
    r"unauthenticated|shutting_down|fenced|commit_backward|corrupt_object)"
)
"""Answers that the faults of this run explain; `unauthenticated` is for keys that were revoked,
`commit_backward` for a commit whose first answer was lost, `corrupt_object` for bytes that were
damaged on their way twice. Those who contend refuse one another."""


def bad_while(dice: random.Random, mode: Mode) -> list[Rule]:
    """PUTs and GETs that fail now and then."""
    puts = ["drop_reply", "reset", "hang", "slow", "status"] + ["lie412"] * (mode == "A")
    return [
        Rule(dice.choice(puts), method="PUT", p=0.3, code=503, delay=0.5),  # type: ignore[arg-type]
        Rule(dice.choice(("reset", "flip", "truncate", "status")), method="GET", p=0.3),  # type: ignore[arg-type]
    ]


async def _peak(here: Ground) -> float:
    """Records a second that are acknowledged when nobody paces himself."""
    crowd = Crowd(here.crowd.doors, here.crowd.history, "peak", pace_s=0)
    tasks = steady(crowd, _PEAK_ASKED, name="peak")
    await crowd.until_acked(10)
    at, began_s = crowd.acked, time.monotonic()
    await asyncio.sleep(_PEAK_S)
    peak = (crowd.acked - at) * PER_REQUEST / (time.monotonic() - began_s)
    crowd.stopping.set()
    await asyncio.gather(*tasks)
    here.crowd.history.gone_home |= {f"peak-{number}" for number in range(len(tasks))}
    return peak


async def _trouble(here: Ground, dice: random.Random, until_s: float) -> None:
    """A bad while of the bucket, or a process that stands still, every 30 s."""
    proxy = here.arena.proxy
    assert proxy is not None
    every_s = min(30.0, (until_s - time.monotonic()) / 4)
    while time.monotonic() + every_s < until_s:
        await asyncio.sleep(every_s * 2 / 3)
        if dice.random() < 0.2:
            await here.pause(2.0)
        else:
            for rule in bad_while(dice, here.arena.mode):
                proxy.add(rule)
        await asyncio.sleep(every_s / 3)
        proxy.clear()
        here.require_workers()


async def run(unit: str, seed: str, folder: Path) -> Done:
    """`MODE-SECONDS`."""
    mode: Mode = "A" if unit.startswith("A") else "B"
    seconds = float(unit.split("-")[1])
    async with ground(mode, folder, f"{seed}/{unit}", s3_read_timeout="1s") as here:
        here.crowd.pace_s = 0.2  # of all but those who keep a pace of their own
        await here.begin()
        peak = await _peak(here)
        here.add(steady(here.crowd, peak / 2))
        memory = Memory()
        watching = asyncio.create_task(memory.watch(here.seb, lambda: here.crowd.acked))
        await _trouble(here, random.Random(f"{seed}/{unit}"), time.monotonic() + seconds)
        watching.cancel()
        unexplained = {
            answer: count
            for answer, count in here.crowd.answers.items()
            if not EXPECTED.fullmatch(answer)
        }
        assert not unexplained, unexplained
        slope, scatter = memory.slope_mib_per_hour(_MEASURED)
        grew_mib = slope * seconds * _MEASURED / 3600
        print(f"{memory.points[0]} {memory.points[-1]} {grew_mib:+.1f} MiB in the last quarter")
        most = GROWTH_MIB_MAX["long" if seconds >= _LONG_S else "short"]
        assert grew_mib < max(most, 3 * scatter), (slope, scatter)
        drift = memory.drift()
        assert seconds < _LONG_S or drift < _DRIFT_MAX, drift
        more_files = memory.more_files()
        assert more_files <= _MORE_FILES_MAX, more_files
        await here.verdict()
        done = Done.of(unit, here)
        done.numbers |= {"seconds": seconds, "max peak, records/s": peak,
                         "max memory, MiB": memory.peak_mib,
                         "max growth in the last quarter, MiB": grew_mib,
                         "max processor time for a write, last quarter to first": drift,
                         "max more files and sockets": more_files}  # fmt: skip
        done.memory_mib = memory.points[:: max(1, len(memory.points) // 100)]
        return done


SOAK = PartOfProof(
    "soak",
    "half of this machine's peak, a fault every 30 s: memory, files, latency, unexplained errors",
    {"quick": "60 s", "full": "30 minutes", "long": "8 hours, half an hour at a time"},
    {"quick": ["A-60"], "full": ["A-1800"], "long": [f"{'AB'[n % 2]}-1800-{n}" for n in range(16)]},
    run,
)

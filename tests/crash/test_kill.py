"""Kill -9 at every failpoint and at random moments, with and without what was on the disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import Arena, Place, directory_arena, rounds, s3_arena
from tests.support.load import pass_time

pytestmark = pytest.mark.slow

# The start's own store test passes K4 to K6, too: about 30 times, in mode B 230 times.
PUTS_OF_A_START = {"A": 50, "B": 260}
ONLY_ON_S3 = {"K12", "K13"}  # a directory needs no cache
# What a mode does at a failpoint does not depend on the store; all four pairs in a long run.
PLACES: list[tuple[Mode, Place]] = [("A", s3_arena), ("B", directory_arena)]
if rounds(0):
    PLACES += [("B", s3_arena), ("A", directory_arena)]
UNDER_LOAD = ["K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K10", "K11", "K12", "K13"]
AT_A_STOP = ["K14", "K15"]
AT_A_START = ["K19", "K20"]


async def die_at(arena: Arena, point: str, *, fresh: bool) -> None:
    """Start an appliance that dies at `point`, and do what leads there."""
    passes = 4
    if point in {"K4", "K5", "K6"}:
        passes = PUTS_OF_A_START[arena.mode]
    elif point in AT_A_STOP + AT_A_START:
        passes = 1
    fresh = fresh or point == "K20"  # there is something to replay
    seb = arena.start(fresh=fresh, fail=f"{point}:kill:{passes}")
    arena.serve_from(seb)
    if point in AT_A_STOP:
        await seb.ready()
        await arena.load.until_acked(5, seb.port)
        seb.process.terminate()
    assert await seb.ended() == -9, (point, seb.shown)


@pytest.mark.parametrize(("mode", "place"), PLACES)
async def test_a_kill_at_each_failpoint_loses_and_doubles_nothing(
    mode: Mode, place: Place, tmp_path: Path
) -> None:
    async with place(mode, tmp_path) as arena:
        seb = arena.start(take_over=True)
        await seb.ready()
        await arena.begin(seb)
        seb.kill()
        points = UNDER_LOAD + AT_A_START + AT_A_STOP
        if arena.server is None:
            points = [point for point in points if point not in ONLY_ON_S3]
        for i, point in enumerate(points):
            await die_at(arena, point, fresh=i % 2 == 1)
        last = arena.start(fresh=True)
        await last.ready()
        arena.serve_from(last)
        await arena.load.until_acked(5, last.port)
        await arena.verdict(last)
        await arena.stop_and_compare(last)


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_kills_at_random_moments_lose_and_double_nothing(mode: Mode, tmp_path: Path) -> None:
    dice = random.Random(f"moments/{mode}")
    async with directory_arena(mode, tmp_path) as arena:
        seb = arena.start(take_over=True)
        await seb.ready()
        await arena.begin(seb)
        for i in range(rounds(13)):
            await pass_time(dice.uniform(0, 0.5))
            seb.kill()
            seb = arena.start(fresh=i % 2 == 1)
            arena.serve_from(seb)
            await seb.ready()
            await arena.load.until_acked(1, seb.port)
        await arena.verdict(seb)
        await arena.stop_and_compare(seb)

"""Kill -9 in every step of merging, switching and deleting, and of the tidier's child alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from seb_appliance.storage import layout
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.stores.object_store import list_all
from tests.crash.arena import Arena, Place, directory_arena, s3_arena
from tests.support.load import pass_time
from tests.support.process import SebProcess

pytestmark = pytest.mark.slow

EAGER = ("--tidy-bytes", "1KiB", "--tidy-young", "0ms", "--garbage-grace", "0ms")
PLACES: list[tuple[Mode, Place]] = [("A", s3_arena), ("B", directory_arena)]
POINTS = ["K16", "K17", "K18"]
CHECKED_EVERY = 5
PATIENCE_S = 120.0  # the log grows all the while, and each second start reads it from the bucket


def kills() -> int:
    """Of each place: SEB_TEST_KILLS, or 10. Each is at the next of the points."""
    return int(os.environ.get("SEB_TEST_KILLS", "10"))


async def stop_cleanly(arena: Arena, seb: SebProcess) -> None:
    """Leaves a snapshot."""
    await arena.load.until_acked(5, seb.port)
    seb.process.terminate()
    assert await seb.ended() == 0, seb.shown


async def keys(arena: Arena, folder: str) -> list[str]:
    return [info.key for info in await list_all(arena.store, folder)]


@pytest.mark.parametrize(("mode", "place"), PLACES)
async def test_a_kill_in_each_step_of_tidying_loses_and_doubles_nothing(
    mode: Mode, place: Place, tmp_path: Path
) -> None:
    async with place(mode, tmp_path) as arena:
        seb = arena.start(take_over=True)
        await seb.ready(PATIENCE_S)
        await arena.begin(seb)
        for _ in range(3):  # snapshots, so that there is a floor
            await stop_cleanly(arena, seb)
            seb = arena.start()
            arena.serve_from(seb)
            await seb.ready(PATIENCE_S)
        seb.kill()
        for i in range(kills()):
            point = POINTS[i % len(POINTS)]
            dying = arena.start("local", *EAGER, fresh=i % 2 == 1, fail=f"{point}:kill:{1 + i % 2}")
            arena.serve_from(dying)
            assert await dying.ended(PATIENCE_S) == -9, (point, dying.shown)
            if i % CHECKED_EVERY == 0:  # as the kill has left it
                await arena.require_sound(dying)
        last = arena.start("local", *EAGER, fresh=True)
        await last.ready(PATIENCE_S)
        arena.serve_from(last)
        await arena.load.until_acked(20, last.port)
        while not await keys(arena, layout.SEGMENTS) + await keys(arena, layout.PACKED):
            await pass_time(0.1)
        await arena.verdict(last)
        await arena.stop_and_compare_snapshots(last)


async def test_the_end_of_the_tidiers_child_costs_a_job_and_nothing_else(tmp_path: Path) -> None:
    async with directory_arena("A", tmp_path) as arena:
        seb = arena.start("local", *EAGER, take_over=True)
        await seb.ready()
        await arena.begin(seb)
        for _ in range(3):
            while (child := child_of(seb)) is None:
                await pass_time(0.02)
            os.kill(child, signal.SIGKILL)
            await stop_cleanly(arena, seb)
            seb = arena.start("local", *EAGER)
            arena.serve_from(seb)
            await seb.ready()
        child = None
        while child is None:
            await pass_time(0.02)
            child = child_of(seb)
        seb.kill()
        while Path(f"/proc/{child}").exists():  # ends with its pipe
            await pass_time(0.02)
        seb = arena.start("local", *EAGER)
        arena.serve_from(seb)
        await seb.ready()
        await arena.verdict(seb)
        await arena.stop_and_compare_snapshots(seb)


def child_of(seb: SebProcess) -> int | None:
    """The process of its tidier, once it has begun."""
    listed = Path(f"/proc/{seb.process.pid}/task/{seb.process.pid}/children")
    for pid in listed.read_text().split():
        try:
            if b"seb_appliance.ops.jobs.tidier_child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        except OSError:
            continue
    return None

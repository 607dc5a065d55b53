"""Two and three appliances on one bucket: one writes, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import Arena, directory_arena, rounds, s3_arena
from tests.support.process import SebProcess

pytestmark = pytest.mark.slow

FENCED = 75
IN_USE = 73
NAMES = ("first", "second", "third")


async def take_over(arena: Arena, data: str, *under_load: SebProcess) -> SebProcess:
    """A new writer that has acknowledged something, while producers knock at the others, too."""
    new = arena.start(data, take_over=True)
    arena.serve_from(*under_load, new)
    await new.ready()
    await arena.load.until_acked(5, new.port)
    return new


async def assert_fenced(arena: Arena, old: SebProcess, new: SebProcess, since: int) -> None:
    """`old` ends with 75, and acknowledged no call of those from number `since` on, which were
    made when `new` was in force."""
    assert await old.ended() == FENCED, old.shown
    assert "Traceback" not in old.shown
    assert new.running, new.shown
    assert arena.load.acked_since(since, old.port) == 0


async def while_it_writes(arena: Arena, old: SebProcess, names: list[str]) -> SebProcess:
    new = await take_over(arena, names[0], old)
    await assert_fenced(arena, old, new, len(arena.load.calls))
    return new


async def while_it_is_paused(arena: Arena, old: SebProcess, names: list[str]) -> SebProcess:
    old.send(signal.SIGSTOP)
    new = await take_over(arena, names[0], old)
    since = len(arena.load.calls)
    old.send(signal.SIGCONT)
    await assert_fenced(arena, old, new, since)
    return new


async def with_a_third_in_between(arena: Arena, old: SebProcess, names: list[str]) -> SebProcess:
    old.send(signal.SIGSTOP)
    between = await take_over(arena, names[0], old)
    new = await take_over(arena, names[1], old, between)
    since = len(arena.load.calls)
    old.send(signal.SIGCONT)
    await assert_fenced(arena, old, new, since)
    await assert_fenced(arena, between, new, since)
    return new


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_who_was_taken_over_acknowledges_nothing_more_and_nothing_is_lost(
    mode: Mode, tmp_path: Path
) -> None:
    kinds = [while_it_writes, while_it_is_paused, with_a_third_in_between]
    async with directory_arena(mode, tmp_path) as arena:
        arena.load.timeout_s = 1.5
        seb = arena.start(NAMES[0], take_over=True)
        await seb.ready()
        await arena.begin(seb)
        for i in range(rounds(10)):
            others = [name for name in NAMES if name != seb.data.name]
            seb = await kinds[i % len(kinds)](arena, seb, others)
            arena.serve_from(seb)
        await arena.verdict(seb)
        await arena.stop_and_compare(seb)


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_of_two_that_take_over_at_the_same_moment_one_serves(
    mode: Mode, tmp_path: Path
) -> None:
    async with directory_arena(mode, tmp_path) as arena:
        arena.load.timeout_s = 1.5
        seb = arena.start(NAMES[0], take_over=True)
        await seb.ready()
        await arena.begin(seb)
        for _ in range(rounds(1)):
            others = [name for name in NAMES if name != seb.data.name]
            both = [arena.start(name, take_over=True) for name in others]
            arena.serve_from(seb, *both)
            assert await seb.ended() == FENCED, seb.shown
            seb, loser = await winner_and_loser(arena, *both)
            assert loser.process.returncode == FENCED, loser.shown
            await seb.ready()
            arena.serve_from(seb)
            await arena.load.until_acked(5, seb.port)
        await arena.verdict(seb)


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_of_two_that_begin_a_bucket_at_the_same_moment_one_serves(
    mode: Mode, tmp_path: Path
) -> None:
    for i in range(rounds(1)):
        async with s3_arena(mode, tmp_path / str(i)) as arena:
            both = [arena.start(name) for name in NAMES[:2]]
            seb, loser = await winner_and_loser(arena, *both)
            assert loser.process.returncode in {IN_USE, FENCED}, loser.shown
            await seb.ready()
            # The winner of a race that was lost late has the loser's key in its journal.
            await arena.begin(seb, key=(seb if has_key(seb) else loser).admin_key)
            await arena.verdict(seb)


def has_key(seb: SebProcess) -> bool:
    return (seb.data / "admin.key").exists()


async def winner_and_loser(
    arena: Arena, one: SebProcess, other: SebProcess
) -> tuple[SebProcess, SebProcess]:
    """Which of the two still runs when the other has ended. Both are knocked at in turn: who is
    idle need not know yet that it was taken over."""
    until_s = time.monotonic() + 60
    while one.running and other.running:
        assert time.monotonic() < until_s, one.shown + other.shown
        for seb in (one, other):
            arena.serve_from(seb)
            await asyncio.sleep(0.2)
    assert one.running or other.running, one.shown + other.shown
    return (one, other) if one.running else (other, one)

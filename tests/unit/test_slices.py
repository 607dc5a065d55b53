"""Long work on the event loop leaves turns for others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from seb_appliance.tasks import SLICE_S, SLICES_AT_ONCE, in_slices, run_in_slices


def work_for(seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        pass


async def test_others_have_turns_while_many_items_are_gone_through() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    seen = []
    async for item in in_slices(range(20)):
        seen.append(item)
        work_for(SLICE_S)
    beside.cancel()
    assert seen == list(range(20))
    assert turns >= 19


async def test_a_turn_has_a_few_slices_however_many_works_there_are() -> None:
    done = list[int]()

    async def work(number: int) -> None:
        async for _ in in_slices(range(3)):
            done.append(number)
            work_for(SLICE_S)

    works = [asyncio.create_task(work(number)) for number in range(20)]
    await asyncio.sleep(0)
    assert done == list(range(20))  # each begins at once
    works[1].cancel()
    while not all(one.done() for one in works):
        before = len(done)
        await asyncio.sleep(0)
        assert len(done) - before <= SLICES_AT_ONCE
    rest = [number for number in range(20) if number != 1]
    assert done[20:] == [*rest, *rest]  # in turns


async def test_short_work_makes_no_pause() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        turns += 1

    beside = asyncio.create_task(other())
    assert [item async for item in in_slices([1, 2, 3])] == [1, 2, 3]
    assert turns == 0
    await beside


async def test_what_is_left_to_do_is_done_between_the_turns_of_others() -> None:
    done = []

    def steps() -> Iterator[None]:
        for step in range(20):
            done.append(step)
            work_for(SLICE_S)
            yield

    run_in_slices(steps())
    assert done == []
    seen = []
    while len(done) < 20:
        await asyncio.sleep(0)
        seen.append(len(done))
    assert seen == list(range(1, 21))

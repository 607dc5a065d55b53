"""The event loop of the simulation: time, order, and processes that die or stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from tests.simulation.loop import DeadlockError, Owner, SimulatedLoop, current_owner, running


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop(Random(1), in_order=True)
    with running(made):
        yield made
    made.end([])


def steps(loop: SimulatedLoop, count: int) -> None:
    for _ in range(count):
        loop._run_once()


def test_time_jumps_to_the_next_timer(loop: SimulatedLoop) -> None:
    seen: list[float] = []
    for seconds in (3600.0, 1.5):
        loop.call_later(seconds, lambda: seen.append(loop.time()))
    steps(loop, 2)
    assert seen == [1.5, 3600.0]


def test_a_timer_that_was_cancelled_does_not_move_time(loop: SimulatedLoop) -> None:
    loop.call_later(5, print).cancel()
    loop.call_later(9, lambda: None)
    steps(loop, 1)
    assert loop.time() == 9


def test_when_nothing_can_run_any_more_it_says_so(loop: SimulatedLoop) -> None:
    with pytest.raises(DeadlockError):
        steps(loop, 1)


def test_what_is_ready_at_once_runs_in_an_order_of_the_seed() -> None:
    orders = set()
    for seed in (1, 1, 2, 3):
        loop, order = SimulatedLoop(Random(seed), in_order=False), []
        for number in range(6):
            loop.call_soon(order.append, number)
        with running(loop):
            steps(loop, 1)
        loop.end([])
        assert sorted(order) == list(range(6))
        orders.add((seed, tuple(order)))
    assert len(orders) == 3


def test_a_killed_process_runs_nothing_any_more(loop: SimulatedLoop) -> None:
    owner, done = Owner("A1"), []

    async def work() -> None:
        try:
            done.append(current_owner())
            await asyncio.sleep(1)
            done.append("went on")
        finally:
            done.append("cleaned up")

    loop.task_of(owner, work())
    steps(loop, 1)
    owner.kill()
    steps(loop, 1)
    assert done == [owner]
    loop.end([owner])


def test_a_process_dies_after_as_many_callbacks_as_were_said(loop: SimulatedLoop) -> None:
    owner, done = Owner("A1"), []
    owner.callbacks_left = 2
    for number in range(4):
        loop.call_soon(done.append, number, context=owner.context)
    steps(loop, 1)
    assert (done, owner.dead) == ([0, 1], True)


def test_a_stopped_process_goes_on_with_what_came_meanwhile(loop: SimulatedLoop) -> None:
    owner, done = Owner("A1"), []
    owner.stopped = True
    loop.call_later(1, done.append, "timer", context=owner.context)
    loop.call_later(2, done.append, "the world's")
    steps(loop, 2)
    assert done == ["the world's"]
    loop.go_on(owner)
    steps(loop, 1)
    assert done == ["the world's", "timer"]


def test_work_of_threads_is_done_between_callbacks(loop: SimulatedLoop) -> None:
    async def ask() -> str:
        return await asyncio.to_thread(lambda: "an answer")

    asked = loop.task_of(None, ask())
    while not asked.done():
        steps(loop, 1)
    assert asked.result() == "an answer"
    assert loop.time() > 0

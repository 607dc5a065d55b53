"""No background task ends without a word: it is begun again, counted and shown."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator

import pytest

from seb_appliance import limits
from seb_appliance.tasks import CALLBACKS, Supervisor
from tests.support.fakes import FakeClock, settle


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.ERROR, "asyncio"):
        yield caplog


async def test_a_task_that_raises_is_begun_again_after_pauses_that_grow(
    logged: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    supervisor = Supervisor(clock)
    begun: list[float] = []

    async def run() -> None:
        begun.append(clock.monotonic_s())
        raise ZeroDivisionError("a bug of ours")

    task = supervisor.keep("t", run)
    await clock.advance(200)
    pauses = [after - before for before, after in itertools.pairwise(begun)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (task.failures, task.failure) == (len(begun), "ZeroDivisionError: a bug of ours")
    assert "the background task t has stopped" in logged.text
    assert "Traceback" in logged.text
    await task.close()
    await clock.advance(200)
    assert task.failures == len(begun)


async def test_a_task_that_went_well_for_a_while_is_begun_again_soon_and_fails_no_more() -> None:
    clock = FakeClock()
    supervisor = Supervisor(clock)
    fails = asyncio.Event()
    begun: list[float] = []

    async def run() -> None:
        begun.append(clock.monotonic_s())
        await fails.wait()
        fails.clear()
        raise ZeroDivisionError

    task = supervisor.keep("t", run, is_essential=True)
    await clock.advance(3600)
    assert (task.is_failing, supervisor.problems) == (False, [])
    for _ in range(2):
        fails.set()
        failed_s = clock.monotonic_s()
        await clock.advance(10)
        assert begun[-1] == failed_s + 1
        assert task.is_failing
        assert supervisor.problems == ["the background task t fails: ZeroDivisionError: "]
        await clock.advance(limits.BACKGROUND_FAILING_S)
        assert (task.is_failing, supervisor.problems, task.failures) == (False, [], len(begun) - 1)
    await task.close()


async def test_a_task_that_returns_has_come_to_its_end() -> None:
    clock = FakeClock()

    async def run() -> None: ...

    task = Supervisor(clock).keep("t", run)
    await clock.advance(100)
    assert (task.failures, clock.armed) == (0, 0)


async def test_what_a_timer_calls_in_vain_is_counted_once(
    logged: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    supervisor = Supervisor(clock)
    asyncio.get_running_loop().set_exception_handler(supervisor.handle)

    async def run() -> None:
        raise ZeroDivisionError("in a task")

    asyncio.get_running_loop().call_soon(lambda: int("a callback's"))
    task = supervisor.keep("t", run)
    await settle()
    callbacks = next(one for one in supervisor.tasks if one.name == CALLBACKS)
    assert (callbacks.failures, task.failures) == (1, 1)
    assert callbacks.failure.startswith("ValueError: ")
    assert not supervisor.problems
    assert "in a task" in logged.text
    assert "a callback's" in logged.text
    await task.close()


async def test_a_task_that_raises_while_it_is_cancelled_is_closed_all_the_same() -> None:
    supervisor = Supervisor(FakeClock())

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("while it was cleaning up")

    task = supervisor.keep("t", run)
    await settle()
    await asyncio.wait_for(task.close(), 5)
    assert (task.failures, task.failure) == (1, "OSError: while it was cleaning up")

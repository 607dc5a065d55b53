"""When requests are due: at fixed times, whatever becomes of those before."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance.bench.plan import Pacer, Schedule


def test_requests_are_due_at_fixed_times_however_late_they_are_taken() -> None:
    schedule = Schedule(10.0)
    schedule.begin(100.0, 101.0)
    assert schedule.take(100.0) == 100.0
    assert schedule.take(100.05) is None
    assert schedule.next_s == pytest.approx(100.1)
    late = [schedule.take(100.55) for _ in range(5)]
    assert late == pytest.approx([100.1, 100.2, 100.3, 100.4, 100.5])
    assert schedule.take(100.55) is None


def test_nothing_is_due_after_the_end() -> None:
    schedule = Schedule(10.0)
    schedule.begin(100.0, 100.25)
    assert [schedule.take(200.0) for _ in range(4)] == pytest.approx([100.0, 100.1, 100.2, None])
    assert schedule.next_s == float("inf")


def test_what_was_due_and_never_sent_is_told() -> None:
    schedule = Schedule(10.0)
    schedule.begin(100.0, 101.0)
    schedule.end(100.25)
    schedule.take(100.0)
    assert schedule.late(105.0) == pytest.approx([100.1, 100.2])


def test_without_a_rate_a_request_is_due_at_once_until_the_end() -> None:
    schedule = Schedule(None)
    schedule.begin(100.0, 101.0)
    assert [schedule.take(now_s) for now_s in (100.0, 100.9, 101.0)] == [100.0, 100.9, None]
    assert schedule.late(105.0) == []


async def test_a_pacer_wakes_the_loop_when_a_request_is_due_and_somebody_can_send_it() -> None:
    now_s = 100.0
    schedule = Schedule(10.0)
    schedule.begin(100.05, 100.2)
    woken = asyncio.Event()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        slept.append(seconds)
        now_s += seconds

    def wake() -> None:
        while schedule.take(now_s) is not None:
            woken.set()

    pacer = Pacer(schedule, wake, lambda: True, clock=lambda: now_s, sleep=sleep)
    pacer.start()
    async with asyncio.timeout(60):
        await woken.wait()
    pacer.stop()
    assert slept[0] == pytest.approx(0.05)


async def test_a_pacer_does_not_wake_the_loop_while_nobody_can_send() -> None:
    schedule = Schedule(1_000.0)
    schedule.begin(0.0, 1_000.0)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    woken: list[int] = []

    def wanted() -> bool:
        loop.call_soon_threadsafe(asked.set)
        return False

    pacer = Pacer(
        schedule, lambda: woken.append(1), wanted, clock=lambda: 10.0, sleep=lambda _: None
    )
    pacer.start()
    async with asyncio.timeout(60):
        await asked.wait()
    pacer.stop()
    await asyncio.sleep(0)
    assert woken == []

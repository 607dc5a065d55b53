"""Each caller hears once: stored, failed, or too late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seb_appliance.broker.append.acknowledgement import AckCallback, AckFuture, WindowWaiters
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.shares import Shares
from seb_appliance.errors import (
    FencedError,
    OutcomeUnknownError,
    SebError,
)
from tests.support.fakes import FakeClock, settle
from tests.unit.broker.conftest import ADMIN, House


async def test_a_caller_whose_time_is_up_is_told_unknown_and_the_record_stays(house: House) -> None:
    house.journal.hold()
    waiting = house.append("t", b"a", timeout_ms=200)
    await house.clock.advance(0.2)
    with pytest.raises(OutcomeUnknownError):
        await waiting
    house.journal.release()
    await house.clock.advance(1)
    assert await house.values("t") == [b"a"]
    assert house.broker.pending.used == 0


class _Told:
    def __init__(self, *, raises: bool = False) -> None:
        self.heard: list[object] = []
        self._raises = raises

    def stored(self, admitted: object, window_s: float, put_s: float) -> None:
        self._hear("stored")

    def failed(self, error: SebError) -> None:
        self._hear(type(error))

    def _hear(self, what: object) -> None:
        self.heard.append(what)
        if self._raises:
            raise RuntimeError("a bug of ours")


async def _told(house: House, *, raises: bool = False) -> _Told:
    told = _Told(raises=raises)
    assert house.broker.appends.append_nowait(ADMIN, "t", b"x", 1, told)
    await settle()
    return told


async def test_who_joins_a_window_after_its_first_gave_up_gives_up_in_time_too(
    house: House,
) -> None:
    await house.topic("t")
    house.journal.hold()
    blocking = house.append("t", b"in flight")
    await house.clock.advance(0.1)
    first = await _told(house)
    await house.clock.advance(30)
    assert first.heard == [OutcomeUnknownError]
    second = await _told(house)
    await house.clock.advance(29)
    assert second.heard == []
    await house.clock.advance(1)
    assert second.heard == [OutcomeUnknownError]
    with pytest.raises(OutcomeUnknownError):
        await blocking


@pytest.mark.parametrize("end", ["stored", "failed", "late"])
async def test_one_who_raises_when_told_keeps_no_other_from_being_told_once(
    house: House, end: str
) -> None:
    await house.topic("t")
    house.journal.hold()
    seen: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    raising, other = await _told(house, raises=True), await _told(house)
    window = house.broker._sequencer.open_window()
    window.when_done(lambda _: 1 / 0, lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    behind = house.append("t", b"x")
    await settle()
    if end == "late":
        await house.clock.advance(31)
    house.journal.fenced = end == "failed"
    house.journal.release()
    await house.clock.advance(1)
    expected = {"stored": "stored", "failed": FencedError, "late": OutcomeUnknownError}[end]
    assert raising.heard == other.heard == [expected]
    assert [type(error) for error in seen].count(ZeroDivisionError) == 1
    assert [type(error) for error in seen].count(RuntimeError) == 1
    if end == "stored":
        assert (await behind).offset == 2
        assert house.broker.failure is None
    else:
        with pytest.raises(SebError):
            await behind
    assert house.broker.pending.used == 0


class Heard:
    """One caller who waits."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None:
        self.told.append((admitted, window_s, put_s))

    def failed(self, error: SebError) -> None:
        self.told.append(type(error))


class Waiting:
    """Those who wait for one window for 10 ms at most; each takes a byte of the budget."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.counters = Counters()
        self.budget = Shares("tests", 100, "bytes")
        self.window = Window()
        self.waiters = WindowWaiters(self.window, self.budget, self.clock, self.counters, 10)

    def wait(self) -> Heard:
        heard = Heard()
        self.add(heard)
        return heard

    def add(self, on_done: AckCallback) -> None:
        reservation = self.budget.reserve("key", 1)
        self.waiters.add(on_done, "admitted", reservation, self.clock.now_s)


async def test_callers_of_a_window_are_told_together_when_it_is_stored() -> None:
    waiting = Waiting()
    first = waiting.wait()
    await waiting.clock.advance(0.004)
    second = waiting.wait()
    waiting.window.sealed_s = waiting.clock.now_s
    waiting.window.resolve(0.5)
    assert (waiting.budget.used, waiting.clock.armed, first.told) == (0, 0, [])
    await settle()
    assert first.told == [("admitted", pytest.approx(0.004), 0.5)]
    assert second.told == [("admitted", 0, 0.5)]


async def test_each_of_them_is_told_that_it_failed() -> None:
    waiting = Waiting()
    callers = [waiting.wait(), waiting.wait()]
    waiting.window.fail(FencedError("another appliance has taken over"))
    await settle()
    assert [caller.told for caller in callers] == [[FencedError], [FencedError]]
    assert waiting.budget.used == 0


async def test_each_of_them_has_its_own_time_and_the_rest_is_told_later() -> None:
    waiting = Waiting()
    first = waiting.wait()
    await waiting.clock.advance(0.006)
    second = waiting.wait()
    await waiting.clock.advance(0.003995)
    assert first.told == []
    await waiting.clock.advance(0.000006)
    assert (first.told, second.told) == ([OutcomeUnknownError], [])
    await waiting.clock.advance(0.005994)
    assert second.told == []
    await waiting.clock.advance(0.000006)
    assert second.told == [OutcomeUnknownError]
    assert waiting.counters.deadlines_passed == 2
    assert waiting.clock.armed == 0
    waiting.window.resolve(0.5)
    await settle()
    assert (len(first.told), len(second.told), waiting.budget.used) == (1, 1, 0)


async def test_one_who_waits_alone_is_told_when_its_time_is_up_and_not_before() -> None:
    waiting = Waiting()
    answer = AckFuture()
    waiting.add(answer)
    await waiting.clock.advance(0.009995)
    assert not answer.future.done()
    await waiting.clock.advance(0.000006)
    with pytest.raises(OutcomeUnknownError, match="within 10 ms"):
        await answer.future
    assert waiting.counters.deadlines_passed == 1


async def test_an_acknowledgement_tells_how_long_its_window_was_open(house: House) -> None:
    waiting = house.append("t", b"a")
    await house.clock.advance(0.01)
    assert (await waiting).window_s == pytest.approx(0.01)


async def test_a_window_for_which_nobody_waits_ends_quietly() -> None:
    waiting = Waiting()
    waiting.window.resolve(0.5)
    await settle()
    assert waiting.clock.armed == 0


async def test_an_answer_that_comes_with_the_deadline_is_the_answer() -> None:
    waiting = Waiting()
    answer = AckFuture()
    waiting.add(answer)
    await waiting.clock.advance(0.009995)
    waiting.window.resolve(0.5)
    await waiting.clock.advance(0.01)
    assert (await answer.future).put_s == 0.5
    assert waiting.counters.deadlines_passed == 0


async def test_a_caller_who_left_is_not_told_and_disturbs_nobody() -> None:
    waiting = Waiting()
    left, stays = AckFuture(), AckFuture()
    waiting.add(left)
    waiting.add(stays)
    left.future.cancel()
    waiting.window.resolve(0.5)
    await stays.future
    assert left.future.cancelled()


async def test_a_caller_who_left_hears_of_no_failure() -> None:
    left = AckFuture()
    left.future.cancel()
    left.failed(FencedError("another appliance has taken over"))
    assert left.future.cancelled()

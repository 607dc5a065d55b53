"""Turns that an acknowledgement takes seldom, each a branch of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.append.acknowledgement import AckCallback, AckFuture, WindowWaiters
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import OPERATOR, Shares
from seb_appliance.errors import (
    BadRequestError,
    FencedError,
    InternalError,
    OutcomeUnknownError,
    SebError,
)
from seb_appliance.formats.operations import Grant
from tests.support.fakes import FakeClock, settle
from tests.unit.broker.conftest import ADMIN, House


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


async def test_an_error_of_our_own_in_the_writer_is_told_to_all_who_wait(house: House) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("a bug")

    house.journal.append = broken  # type: ignore[assignment,method-assign]
    waiting = house.append("t", b"a")
    await house.clock.advance(1)
    with pytest.raises(InternalError, match="a bug"):
        await waiting
    with pytest.raises(InternalError):
        await house.append("t", b"b")
    writer = house.broker._writer
    assert writer is not None
    with pytest.raises(ValueError, match="a bug"):
        await writer
    house.broker._writer = None


def commit_nowait(house: House, topic: str, heard: Heard) -> bool:
    return house.broker.groups.commit_nowait(Actor("key", ""), Commit("g", {topic: 1}), heard)


async def test_a_commit_without_a_task_is_told_once_it_is_stored(house: House) -> None:
    await house.appended("t", b"a")
    heard = Heard()
    assert not commit_nowait(house, "t", heard)  # who makes a group is noted the long way
    await house.commit("g", {"t": 0})
    assert commit_nowait(house, "t", heard)
    assert heard.told == []
    await house.clock.advance(1)
    ((admitted, _, _),) = heard.told
    assert admitted[0].offset == 1
    assert await house.stand() == 1


async def test_a_commit_that_would_be_refused_is_left_to_who_says_why(house: House) -> None:
    heard = Heard()
    assert not commit_nowait(house, "nowhere", heard)
    await house.appended("t", b"a")
    taken = house.broker.pending.reserve(OPERATOR, limits.PENDING_BYTES_DEFAULT)
    assert not commit_nowait(house, "t", heard)
    taken.release()
    await house.clock.advance(1)
    assert heard.told == []
    assert await house.stand() is None


async def test_there_are_not_more_api_keys_than_there_may_be(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_KEYS_MAX", 1)
    create = house.broker.access.create
    await house.done(create("one", (Grant(operation="admin"),)))
    with pytest.raises(BadRequestError, match="There are 1 API keys already"):
        await house.done(create("two", (Grant(operation="admin"),)))


async def test_there_are_not_more_topics_than_there_may_be(
    house: House,
) -> None:
    house.broker._writes.admission._shares.limit = 1
    await house.topic("one")
    with pytest.raises(BadRequestError, match="1 of 1 topics are in use"):
        await house.appended("two", b"a")


async def test_records_of_one_microsecond_keep_their_order_and_their_time(house: House) -> None:
    await house.topic("t")
    callers = [Heard(), Heard()]
    for heard in callers:
        assert house.broker.appends.append_nowait(ADMIN, "t", b"a", 1, heard)
    await house.clock.advance(1)
    assert [heard.told[0][0].offset for heard in callers] == [0, 1]


async def test_nothing_more_is_admitted_once_another_has_taken_over(house: House) -> None:
    house.journal.fenced = True
    first = house.append("t", b"a")
    await house.clock.advance(1)
    with pytest.raises(FencedError):
        await first
    with pytest.raises(FencedError):
        house.broker._sequencer.open_window()


async def test_what_an_entry_leaves_to_be_done_in_steps_is_done_before_it_is_acknowledged(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def steps() -> Iterator[None]:
        for step in range(3):
            yield
            done.append(step)

    monkeypatch.setattr(house.broker._catalog, "steps", steps)
    await house.appended("t", b"a")
    assert done == [0, 1, 2]


async def test_who_finds_another_writer_ends_all_that_waits(house: House) -> None:
    waiting = house.append("t", b"a")
    await settle()
    house.broker._sequencer.fail(FencedError("another appliance has taken over"))
    with pytest.raises(FencedError):
        await waiting
    await settle()
    assert house.broker._writer is not None
    assert house.broker._writer.done()
    assert house.journal.entries == []


async def test_what_is_appended_at_once_waits_for_its_linger_and_no_longer(house: House) -> None:
    await house.topic("t", linger_ms=1_000)
    heard = Heard()
    assert house.broker.appends.append_nowait(ADMIN, "t", b"a", 1, heard)
    await house.clock.advance(0.9995)
    assert heard.told == []
    await house.clock.advance(0.0005)
    assert [admitted.offset for admitted, _, _ in heard.told] == [0]


async def test_a_record_that_is_too_long_is_left_to_who_says_why(house: House) -> None:
    await house.topic("t", max_record_bytes=3)
    heard = Heard()
    assert not house.broker.appends.append_nowait(ADMIN, "t", b"four", 4, heard)
    assert house.broker.appends.append_nowait(ADMIN, "t", b"one", 3, heard)
    await house.clock.advance(1)
    assert len(heard.told) == 1

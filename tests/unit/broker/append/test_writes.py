"""One way in: what is refused before anything is admitted, and what waits."""

from __future__ import annotations

from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.append.writes import UNTIL_KNOWN_MS
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.errors import (
    OutcomeUnknownError,
    OverloadedError,
    SebError,
)
from tests.support.fakes import settle
from tests.unit.broker.conftest import House


async def test_an_append_over_the_pending_budget_is_refused(house: House) -> None:
    house.broker.pending.limit = limits.PENDING_CALL_BYTES + limits.PENDING_RECORD_BYTES + 10
    house.journal.hold()
    waiting = house.append("t", b"12345678")
    await settle()
    with pytest.raises(OverloadedError):
        house.broker.pending.reserve(OPERATOR, 8)
    house.journal.release()
    await house.clock.advance(1)
    await waiting
    house.broker.pending.reserve(OPERATOR, 8).release()


async def test_no_append_is_taken_while_sqlite_is_too_far_behind(house: House) -> None:
    house.state.is_far_behind = True
    with pytest.raises(OverloadedError):
        await house.append("t", b"a")
    house.state.is_far_behind = False
    assert (await house.appended("t", b"a")).offset == 0


class Heard:
    """One caller who waits."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None:
        self.told.append((admitted, window_s, put_s))

    def failed(self, error: SebError) -> None:
        self.told.append(type(error))


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


async def test_a_command_that_adds_nothing_holds_nothing_and_calls_nobody(house: House) -> None:
    heard = Heard()
    reservation = house.broker.pending.reserve(OPERATOR, 100)
    assert house.broker._writes.submit(lambda: None, reservation, heard) is None
    await house.clock.advance(60)
    assert (heard.told, house.broker.pending.used, house.clock.armed) == ([], 0, 0)


async def test_a_command_that_raises_gives_back_what_it_held(house: House) -> None:
    def broken() -> None:
        raise RuntimeError("a bug")

    reservation = house.broker.pending.reserve(OPERATOR, 100)
    with pytest.raises(RuntimeError):
        house.broker._writes.submit(broken, reservation, Heard())
    assert house.broker.pending.used == 0


async def test_what_is_held_is_given_back_when_the_window_is_done_not_when_time_is_up(
    house: House,
) -> None:
    house.journal.hold()
    waiting = house.append("t", b"a", timeout_ms=100)
    await house.clock.advance(1)
    assert waiting.done()
    with pytest.raises(OutcomeUnknownError, match="within 100 ms"):
        await waiting
    assert house.broker.pending.used > 0
    house.journal.release()
    await house.clock.advance(1)
    assert house.broker.pending.used == 0
    assert house.broker.counters.deadlines_passed == 1


async def test_a_commit_without_a_task_is_refused_without_a_word(house: House) -> None:
    await house.appended("t", b"a")
    await house.commit("g", {"t": 0})
    heard = Heard()
    assert not commit_nowait(house, "nowhere", heard)
    taken = house.broker.pending.reserve(OPERATOR, house.broker.pending.limit)
    assert not commit_nowait(house, "t", heard)
    taken.release()
    await house.clock.advance(1)
    assert (heard.told, house.broker.pending.used) == ([], 0)


async def test_a_write_that_waits_until_it_is_known_outlasts_every_outage(house: House) -> None:
    house.journal.hold()
    waiting = house.append("t", b"a", timeout_ms=UNTIL_KNOWN_MS)
    await house.clock.advance(24 * 3600)
    assert not waiting.done()
    house.journal.release()
    await house.clock.advance(1)
    assert (await waiting).offset == 0

"""An appliance that cannot write says so."""

from __future__ import annotations

import pytest

from seb_appliance.errors import (
    OutcomeUnknownError,
)
from tests.support.fakes import settle
from tests.unit.broker.conftest import House


async def test_readiness_tells_of_a_window_past_its_deadline(house: House) -> None:
    sequencer = house.broker._sequencer
    waiting = house.append("t", b"a")
    await settle()
    sequencer._timer.cancel()  # a wake-up is lost
    await house.clock.advance(4)
    assert (await house.broker.readiness()).problems == []
    await house.clock.advance(2)
    (problem,) = (await house.broker.readiness()).problems
    assert "past its deadline" in problem
    sequencer.flush()
    await settle()
    assert waiting.done()
    assert (await house.broker.readiness()).problems == []


async def test_readiness_tells_of_a_window_in_flight_once_its_callers_gave_up(house: House) -> None:
    house.journal.hold()
    waiting = house.append("t", b"a")
    await house.clock.advance(6)
    assert (await house.broker.readiness()).problems == []
    await house.clock.advance(25)
    assert any("deadline" in problem for problem in (await house.broker.readiness()).problems)
    with pytest.raises(OutcomeUnknownError):
        await waiting

"""What the log says of refused connections."""

from __future__ import annotations

import logging

import pytest

from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.refusals import Refusals
from tests.support.fakes import FakeClock


async def test_of_many_refusals_some_are_logged_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    refusals = Refusals(clock, "Kafka")
    for _ in range(1_000):
        refusals.note("n" * 8_000, "192.0.2.1", "no API key has come")
    assert refusals.count == 1_000
    assert len(caplog.records) == socket_limits.REFUSALS_LOGGED_MAX
    assert max(len(one.getMessage()) for one in caplog.records) < 200
    caplog.clear()
    await clock.advance(60)
    refusals.note("c", "192.0.2.1", "no API key has come")
    assert [one.getMessage() for one in caplog.records] == [
        "900 further Kafka clients were refused a while ago",
        "Kafka client 'c' at 192.0.2.1: no API key has come",
    ]

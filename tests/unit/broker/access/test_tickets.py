"""Tickets: they stand for an API key for a minute, and only while it does not change."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.tickets import Tickets
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.names import Patterns
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import UnauthenticatedError
from tests.support.fakes import FakeClock

KEY = ApiKeyView("key", "key", (), 0)
TOPICS = Patterns(["t"])


def tickets_of(clock: FakeClock, changed: set[str]) -> tuple[Tickets, AllShares]:
    shares, drawn = AllShares(), iter(range(100))

    def still_holds(key: ApiKeyView, _: int) -> bool:
        return key.api_key_id not in changed

    return Tickets(still_holds, clock, lambda n: next(drawn).to_bytes(n, "big"), shares), shares


async def test_a_ticket_is_good_for_a_minute_and_no_longer() -> None:
    clock = FakeClock()
    tickets, _ = tickets_of(clock, set())
    ticket = tickets.give(KEY, 0, TOPICS)
    await clock.advance(limits.TICKET_S - 1)
    assert tickets.find(ticket.text) is ticket
    await clock.advance(1)
    with pytest.raises(UnauthenticatedError):
        tickets.find(ticket.text)


def test_a_change_of_the_api_key_ends_its_tickets() -> None:
    changed: set[str] = set()
    tickets, _ = tickets_of(FakeClock(), changed)
    ticket = tickets.give(KEY, 0, TOPICS)
    changed.add("key")
    with pytest.raises(UnauthenticatedError):
        tickets.find(ticket.text)


async def test_an_expired_ticket_gives_its_share_back() -> None:
    clock = FakeClock()
    tickets, shares = tickets_of(clock, set())
    tickets.give(KEY, 0, TOPICS)
    await clock.advance(limits.TICKET_S)
    tickets.give(KEY, 0, TOPICS)
    assert [one.used for one in shares] == [1]

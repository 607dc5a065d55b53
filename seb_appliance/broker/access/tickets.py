"""Tickets: what a browser sends in a URL instead of an API key, where it cannot set a header.

For a minute, a ticket allows an API key's reads of topics that match its patterns: long enough to
open a stream and to reconnect. Any change of the API key ends its tickets, and so does a restart.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from seb_appliance import limits
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.names import Patterns
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.clock import Clock
from seb_appliance.errors import UnauthenticatedError

_RANDOM_BYTES = 24


@dataclass(frozen=True, slots=True)
class Ticket:
    """`text` is the secret. Good until `expires_us` (µs since the epoch) while `key` is as it was,
    which its overlap or expiry may end at `key_until_us`."""

    text: str
    key: ApiKeyView
    key_until_us: int
    topics: Patterns
    expires_us: int


class Tickets:
    """Valid tickets, and some expired ones that wait for removal."""

    def __init__(
        self,
        still_holds: Callable[[ApiKeyView, int], bool],
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        shares: AllShares,
    ) -> None:
        """`still_holds`: see `Access.still_holds`."""
        self._still_holds = still_holds
        self._clock = clock
        self._random_bytes = random_bytes
        self._shares = shares.declare("tickets", limits.TICKETS_MAX, "tickets")
        self._tickets: OrderedDict[str, tuple[Ticket, float]] = OrderedDict()  # with their end

    def give(self, key: ApiKeyView, key_until_us: int, topics: Patterns) -> Ticket:
        """For an API key that was authenticated just now. Raises ShareExceededError,
        OverloadedError."""
        now_s = self._clock.monotonic_s()
        while self._tickets and next(iter(self._tickets.values()))[1] <= now_s:
            _, (over, _) = self._tickets.popitem(last=False)
            self._shares.give_back(over.key.api_key_id, 1)
        self._shares.take(key.api_key_id, 1)
        text = "tkt_" + base64.urlsafe_b64encode(self._random_bytes(_RANDOM_BYTES)).decode()
        expires_us = self._clock.wall_us() + limits.TICKET_S * 1_000_000
        ticket = Ticket(text, key, key_until_us, topics, expires_us)
        self._tickets[text] = (ticket, now_s + limits.TICKET_S)
        return ticket

    def find(self, text: str) -> Ticket:
        """Raises UnauthenticatedError."""
        ticket, end_s = self._tickets.get(text, (None, 0.0))
        if (
            ticket is None
            or end_s <= self._clock.monotonic_s()
            or not self._still_holds(ticket.key, ticket.key_until_us)
        ):
            raise UnauthenticatedError(
                f"The ticket is unknown, older than {limits.TICKET_S} s, or its API key was "
                "changed; ask for a new one by POST /v1/tickets."
            )
        return ticket

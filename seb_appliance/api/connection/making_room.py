"""Who goes when all connections that may be open are: clients that we wait for, the longest first.

Somebody who opens thousands of connections and says half of something on each must keep nobody
else out. Whoever has sent a request is waited for by nobody and stays; a new client sends its head
at once, so it is never the one that was waited for longest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final, Protocol

# At one time: looking at all of 8,000 takes milliseconds, which so many new ones share.
AT_ONCE: Final = 64


class Holding(Protocol):
    """A connection. `waited_for`: for what we wait for its client, and since when (seconds on the
    loop's clock); what is smaller goes first. None while the client waits for us."""

    @property
    def waited_for(self) -> tuple[int, float] | None: ...

    def cut(self) -> None:
        """Give it up at once, without a word: nothing that was asked is under way."""


def make_room(connections: Iterable[Holding]) -> None:
    """Cut up to AT_ONCE of those that may go."""
    ranked = [(rank, number, one) for number, one in enumerate(connections)
              if (rank := one.waited_for) is not None]  # fmt: skip
    for _, _, slow in heapq.nsmallest(AT_ONCE, ranked):
        slow.cut()

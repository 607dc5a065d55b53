"""Producers whose throughput the window bounds.

A client leaves at most so many Produce requests unanswered. Where each of them waits for the
window, its throughput is what these carry per window, however fast client and appliance are. The
appliance does not know the client's limit; but a connection that has as many unanswered requests
as it ever has, nearly all of the time, waits at its limit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from seb_appliance.protocols.sockets.connected import Stalled

INTERVAL_S: Final = 10.0  # what is looked at, at a time
_PART: Final = 0.9  # of it, at the limit
_ANSWERED_MIN: Final = 2  # requests in it


class Stored(NamedTuple):
    """How long the records of a request waited: for their window to close, and then for the
    bucket."""

    window_s: float
    put_s: float


class Stalling:
    """Of one connection. Counts the Produce requests that want an answer."""

    __slots__ = (
        "_answered",
        "_at_most_s",
        "_began_s",
        "_found",
        "_most",
        "_number",
        "_put_s",
        "_since_s",
        "_window_s",
    )

    def __init__(self, now_s: float) -> None:
        self._number = self._most = 0
        self._found: Stalled | None = None
        self._begin(now_s)

    def took(self, now_s: float) -> None:
        """A request has come."""
        self._number += 1
        if self._number >= self._most:
            if self._number > self._most:
                self._most, self._at_most_s = self._number, 0.0
            self._since_s = now_s

    def answered(self, now_s: float, topic: str, stored: Stored | None) -> None:
        """A request is answered. `stored`: the longest wait of its parts; None: nothing was
        stored."""
        if self._number == self._most:
            self._at_most_s += now_s - self._since_s
        self._number -= 1
        if stored is not None:
            self._answered += 1
            self._window_s += stored.window_s
            self._put_s += stored.put_s
        if now_s - self._began_s >= INTERVAL_S:
            self._found = self._judge(now_s, topic)
            self._begin(now_s)

    def at(self, now_s: float) -> Stalled | None:
        """None: the producer is not stalled, or has ended."""
        return self._found if now_s - self._began_s < 2 * INTERVAL_S else None

    def _begin(self, now_s: float) -> None:
        self._began_s = self._since_s = now_s
        self._most = max(1, self._number)
        self._at_most_s = self._window_s = self._put_s = 0.0
        self._answered = 0

    def _judge(self, now_s: float, topic: str) -> Stalled | None:
        waits_most = self._at_most_s >= _PART * (now_s - self._began_s)
        # Where the bucket takes longer than the window, a shorter linger does not help.
        if not waits_most or self._window_s <= self._put_s or self._answered < _ANSWERED_MIN:
            return None
        return Stalled(topic, self._most, self._window_s / self._answered)

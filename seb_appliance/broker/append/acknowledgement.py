"""Acknowledgement: each caller is called once, when its window is stored or has failed, or after
the timeout.

A caller that leaves or times out does not affect other callers or the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, NamedTuple, Protocol

from seb_appliance.broker.append.window import Window
from seb_appliance.broker.callbacks import tell
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.clock import Clock, Timer
from seb_appliance.errors import OutcomeUnknownError, SebError


class AckCallback(Protocol):
    """A caller of `Writes.submit`; exactly one method is called, once. `admitted`: the result of
    the admission."""

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None: ...

    def failed(self, error: SebError) -> None: ...


class _Nobody:
    """Whatever becomes of it: the next event of the queue, or a restart, finds the same again."""

    def stored(self, admitted: object, window_s: float, put_s: float) -> None: ...

    def failed(self, error: SebError) -> None: ...


NOBODY: Final = _Nobody()


class Stored(NamedTuple):
    """The result of an admission that is stored. `window_s`: the wait until the window was sealed.
    `put_s`: the duration of the bucket's PUT."""

    admitted: Any
    window_s: float
    put_s: float


class AckFuture:
    """An `AckCallback` to await."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None:
        if not self.future.done():
            self.future.set_result(Stored(admitted, window_s, put_s))

    def failed(self, error: SebError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class WindowWaiters:
    """The callers that wait for one window, with one callback and one timer for all of them.

    Callbacks run in the next turn of the event loop, when the writer has begun its next PUT. What
    the callers hold of `pending` is given back when the window is done.
    """

    def __init__(
        self, window: Window, pending: Shares, clock: Clock, counters: Counters, wait_ms: int
    ) -> None:
        self.window = window
        self._pending = pending
        self._clock = clock
        self._counters = counters
        self._wait_ms = wait_ms
        self._held: dict[str, int] = {}  # by owner
        self._waiting: deque[tuple[float, AckCallback, Any]] = deque()
        self._timer: Timer | None = None
        self._loop = asyncio.get_running_loop()
        window.when_done(self._stored, self._failed)

    def add(
        self, on_done: AckCallback, admitted: Any, reservation: Reservation | None, now_s: float
    ) -> None:
        """Takes `reservation` over."""
        if reservation is not None:
            owner = reservation.owner
            self._held[owner] = self._held.get(owner, 0) + reservation.held
            reservation.held = 0
        self._waiting.append((now_s, on_done, admitted))
        if self._timer is None:
            self._timer = self._clock.call_later(self._wait_ms / 1000, self._expire)

    def _stored(self, put_s: float) -> None:
        self._release()
        self._loop.call_soon(self._tell_stored, put_s)

    def _failed(self, error: Exception) -> None:
        self._release()
        assert isinstance(error, SebError), error
        self._loop.call_soon(self._tell_failed, error)

    def _release(self) -> None:
        for owner, held_bytes in self._held.items():
            self._pending.give_back(owner, held_bytes)
        if self._timer is not None:
            self._timer.cancel()

    def _tell_stored(self, put_s: float) -> None:
        sealed_s = self.window.sealed_s
        for since_s, on_done, admitted in self._waiting:
            tell(on_done.stored, admitted, sealed_s - since_s, put_s)

    def _tell_failed(self, error: SebError) -> None:
        for _, on_done, _ in self._waiting:
            tell(on_done.failed, error.again())

    def _expire(self) -> None:
        """The oldest callers have timed out. Others were added later, and more may follow."""
        self._timer = None
        now_s = self._clock.monotonic_s()
        wait_s = self._wait_ms / 1000
        while self._waiting and self._waiting[0][0] + wait_s <= now_s:
            _, on_done, _ = self._waiting.popleft()
            self._counters.deadlines_passed += 1
            too_late = OutcomeUnknownError(
                f"The bucket has not confirmed it within {self._wait_ms} ms. The request may still "
                "be stored: read the topic before you send it again."
            )
            tell(on_done.failed, too_late)
        if self._waiting:
            left_s = self._waiting[0][0] + wait_s - now_s
            self._timer = self._clock.call_later(left_s, self._expire)

"""Telling callers: once when their window is stored or never will be, or when their time is up."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol, TypeVar

from seb_appliance.broker.append.admission import AdmittedAppend
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.callbacks import tell
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.broker.values import Appended
from seb_appliance.clock import Clock, Timer
from seb_appliance.errors import OutcomeUnknownError, SebError

_T = TypeVar("_T")


class Acknowledger:
    """Each caller gets a future of its own: one that leaves, or whose time is up, disturbs no
    other, and the log goes on without it."""

    def __init__(
        self, *, clock: Clock, counters: Counters, longest_wait_ms: int, durability: str
    ) -> None:
        self._clock = clock
        self._counters = counters
        self._longest_wait_ms = longest_wait_ms
        self._durability = durability

    def appended(
        self, window: Window, topic: str, admitted: AdmittedAppend, reservation: Reservation
    ) -> asyncio.Future[Appended]:
        """The acknowledgement of an append; `reservation` is released with it."""
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        admitted_s = self._clock.monotonic_s()

        def stored(put_s: float) -> None:
            reservation.release()
            if not future.done():
                future.set_result(
                    Appended(
                        topic,
                        admitted.topic_id,
                        admitted.offset,
                        admitted.count,
                        admitted.timestamp_us,
                        self._durability,
                        window.sealed_s - admitted_s,
                        put_s,
                    )
                )

        def failed(error: Exception) -> None:
            reservation.release()
            _fail(future, error)

        window.when_done(stored, failed)
        return future

    def done(self, window: Window) -> asyncio.Future[None]:
        """Resolves when the window's entry is applied, and fails as it fails."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def stored(_put_s: float) -> None:
            if not future.done():
                future.set_result(None)

        window.when_done(stored, lambda error: _fail(future, error))
        return future

    async def by_deadline(self, future: asyncio.Future[_T], timeout_ms: int | None = None) -> _T:
        """The future's result, or OutcomeUnknownError after `timeout_ms` (at most, and by default,
        the appliance's acknowledgement time-out)."""
        allowed_ms = min(timeout_ms or self._longest_wait_ms, self._longest_wait_ms)

        def give_up() -> None:
            if not future.done():
                self._counters.deadlines_passed += 1
                future.set_exception(_too_late(allowed_ms))

        timer = self._clock.call_later(allowed_ms / 1000, give_up)
        try:
            return await future
        finally:
            timer.cancel()

    def together(self, window: Window, pending: Shares) -> Together:
        """For the many callers of a window who need no future each."""
        return Together(window, pending, self._clock, self._counters, self._longest_wait_ms)

    async def once_stored(self, window: Window | None, timeout_ms: int | None = None) -> None:
        """Wait until a window is applied, if there is one and it is not. Raises as it fails, and
        OutcomeUnknownError after `timeout_ms`."""
        if window is not None and not window.is_done:
            await self.by_deadline(self.done(window), timeout_ms)


class Told(Protocol):
    """Who waits for what was admitted and is told by a call: once, by one of these. `admitted`:
    what the admission gave."""

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None: ...

    def failed(self, error: SebError) -> None: ...


class Together:
    """Callers of one window who are told together: one callback and one timer for all of them.

    They are told on the loop's next turn, when the writer has begun its next PUT. What they hold
    of `pending` is given back when the window is done.
    """

    def __init__(
        self,
        window: Window,
        pending: Shares,
        clock: Clock,
        counters: Counters,
        longest_wait_ms: int,
    ) -> None:
        self.window = window
        self._pending = pending
        self._clock = clock
        self._counters = counters
        self._longest_wait_ms = longest_wait_ms
        self._held: dict[str, int] = {}  # by owner
        self._waiting: deque[tuple[float, Told, Any]] = deque()
        self._timer: Timer | None = None
        self._loop = asyncio.get_running_loop()
        window.when_done(self._stored, self._failed)

    def add(self, told: Told, admitted: Any, owner: str, held_bytes: int, now_s: float) -> None:
        """`owner` has taken `held_bytes` of `pending`. Their time is as long as anybody's."""
        self._held[owner] = self._held.get(owner, 0) + held_bytes
        self._waiting.append((now_s, told, admitted))
        if self._timer is None:
            self._timer = self._clock.call_later(self._longest_wait_ms / 1000, self._give_up)

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
        for since_s, told, admitted in self._waiting:
            tell(told.stored, admitted, sealed_s - since_s, put_s)

    def _tell_failed(self, error: SebError) -> None:
        for _, told, _ in self._waiting:
            tell(told.failed, error.again())

    def _give_up(self) -> None:
        """The time of the first who wait is up; others have joined later, or may join yet."""
        self._timer = None
        now_s = self._clock.monotonic_s()
        wait_s = self._longest_wait_ms / 1000
        while self._waiting and self._waiting[0][0] + wait_s <= now_s:
            _, told, _ = self._waiting.popleft()
            self._counters.deadlines_passed += 1
            tell(told.failed, _too_late(self._longest_wait_ms))
        if self._waiting:
            left_s = self._waiting[0][0] + wait_s - now_s
            self._timer = self._clock.call_later(left_s, self._give_up)


def _too_late(allowed_ms: int) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"The bucket has not answered within {allowed_ms} ms. What was sent is on its way and may "
        "be stored yet: look before sending it again."
    )


def _fail(future: asyncio.Future[_T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error.again() if isinstance(error, SebError) else error)

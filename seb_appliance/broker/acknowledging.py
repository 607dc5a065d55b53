"""Telling callers: once when their window is stored or never will be, or when their time is up."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from seb_appliance.broker.admission import AdmittedAppend
from seb_appliance.broker.budget import Reservation
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.values import Appended
from seb_appliance.broker.window import Window
from seb_appliance.clock import Clock
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
                future.set_exception(
                    OutcomeUnknownError(
                        f"The bucket has not answered within {allowed_ms} ms. What was sent is on "
                        "its way and may be stored yet: look before sending it again."
                    )
                )

        timer = self._clock.call_later(allowed_ms / 1000, give_up)
        try:
            return await future
        finally:
            timer.cancel()

    async def once_stored(self, window: Window | None, timeout_ms: int | None = None) -> None:
        """Wait until a window is applied, if there is one and it is not. Raises as it fails, and
        OutcomeUnknownError after `timeout_ms`."""
        if window is not None and not window.is_done:
            await self.by_deadline(self.done(window), timeout_ms)


def _fail(future: asyncio.Future[_T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error.again() if isinstance(error, SebError) else error)

"""The only way to write: a command is checked against everything admitted before it, joins the
open window, and its caller is called back when the window is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from seb_appliance import limits
from seb_appliance.broker.append.acknowledgement import (
    AckCallback,
    AckFuture,
    Stored,
    WindowWaiters,
)
from seb_appliance.broker.append.admission import Admission, Refusal
from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import State
from seb_appliance.broker.shares import OPERATOR, Reservation, Shares
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    OutcomeUnknownError,
    OverloadedError,
    SebError,
    ShuttingDownError,
    StoreUnavailableError,
)
from seb_appliance.formats.contents import Produced


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """What a command added to `window`, which may stay open for `linger_ms` more."""

    window: Window
    result: Any
    linger_ms: int
    early_flush: bool = False


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The request was made before: what it did, once `after` (if given) is stored. `produced` is
    None when it was a producer's seq too long ago to be remembered."""

    produced: Sequence[Produced] | None
    after: Window | None


# Decides one request, without waiting. None: there is nothing to add. Raises Refusal or SebError,
# and has changed nothing then.
Command = Callable[[], Admitted | Duplicate | None]


class Writes:
    """`admission` is the view ahead of the catalog. `stopping`: no more writes are admitted."""

    def __init__(
        self,
        admission: Admission,
        sequencer: Sequencer,
        state: State,
        pending: Shares,
        linger: Linger,
        *,
        ack_timeout_ms: int,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self.admission = admission
        self.sequencer = sequencer
        self.pending = pending
        self.linger = linger
        self.clock = clock
        self.stopping = False
        self._state = state
        self._ack_timeout_ms = ack_timeout_ms
        self._counters = counters
        self._waiters: WindowWaiters | None = None  # of the window that was open last

    def submit(
        self,
        command: Command,
        reservation: Reservation,
        on_done: AckCallback,
        timeout_ms: int | None = None,
    ) -> Admitted | Duplicate | None:
        """Decide a command. If it is admitted, `on_done` is called once: when it is stored, when
        it never will be, or after `timeout_ms` (at most, and by default, the appliance's
        acknowledgement timeout). Otherwise `on_done` is never called.

        Takes `reservation` over: it is held until the window is done. Raises Refusal, or SebError
        where nothing is taken now.
        """
        if self.stopping or self.sequencer.refusal is not None or self._state.is_far_behind:
            reservation.release()
            raise self._refusal()
        try:
            decided = command()
        except BaseException:
            reservation.release()
            raise
        if type(decided) is not Admitted:
            reservation.release()
            return decided
        now_s = self.clock.monotonic_s()
        waiters = self._waiters
        if timeout_ms is not None and timeout_ms < self._ack_timeout_ms:
            waiters = self._new_waiters(decided.window, timeout_ms)
        elif waiters is None or waiters.window is not decided.window:
            # One timer serves all callers with the default timeout.
            waiters = self._waiters = self._new_waiters(decided.window, None)
        waiters.add(on_done, decided.result, reservation, now_s)
        self.sequencer.close_within(
            decided.window, decided.linger_ms / 1000, early=decided.early_flush, now_s=now_s
        )
        return decided

    async def store(
        self, command: Command, reservation: Reservation, timeout_ms: int | None = None
    ) -> Stored | Duplicate | None:
        """`submit`, and wait. A duplicate is returned once its original is stored, and a refusal
        that rests on something pending is raised once that is stored. Raises SebError;
        OutcomeUnknownError after `timeout_ms`."""
        ack = AckFuture()
        try:
            decided = self.submit(command, reservation, ack, timeout_ms)
        except Refusal as refusal:
            raise await self._settled(refusal) from None
        if isinstance(decided, Duplicate):
            await self.once_stored(decided.after, timeout_ms)
        return await ack.future if isinstance(decided, Admitted) else decided

    async def operate(
        self,
        admit: Callable[[Window], object],
        linger_ms: int | None = None,
        owner: str = OPERATOR,
    ) -> bool:
        """Store the events that `admit` adds; an operator's (`linger_ms` None) soon. `admit`
        returns False if it has nothing to add. The events are held in `pending` for `owner`."""
        if linger_ms is None:
            linger_ms = min(limits.OPERATOR_LINGER_MS, self.linger.default_ms)
        reservation = Reservation(self.pending, owner)

        def command() -> Admitted | None:
            reservation.grow(limits.PENDING_CALL_BYTES)
            return self._events(admit, linger_ms, reservation)

        return await self.store(command, reservation) is not None

    def operate_nowait(
        self, admit: Callable[[Window], object], linger_ms: int, owner: str, on_done: AckCallback
    ) -> bool:
        """`operate` without waiting: `on_done` gets the result of `admit`. False, and nothing
        happened, where `operate` would raise; it gives the reason."""
        reservation = Reservation(self.pending, owner)
        if not reservation.try_grow(limits.PENDING_REQUEST_BYTES):
            return False
        command = partial(self._events, admit, linger_ms, reservation)
        try:
            return self.submit(command, reservation, on_done) is not None
        except (Refusal, SebError):
            return False

    def _events(
        self, admit: Callable[[Window], object], linger_ms: int, reservation: Reservation
    ) -> Admitted | None:
        window = self.sequencer.open_window()
        before_bytes = window.size_bytes
        result = admit(window)
        if result is False:
            return None
        reservation.grow_anyway(window.size_bytes - before_bytes)
        return Admitted(window, result, linger_ms)

    async def once_stored(self, window: Window | None, timeout_ms: int | None = None) -> None:
        """Wait until a window is applied, if there is one. Raises as it fails, and
        OutcomeUnknownError after `timeout_ms`."""
        if window is None or window.is_done:
            return
        ack = AckFuture()
        self._new_waiters(window, timeout_ms).add(ack, None, None, self.clock.monotonic_s())
        await ack.future

    def _refusal(self) -> SebError:
        if self.stopping:
            return ShuttingDownError("The appliance is stopping; nothing was stored.")
        if self.sequencer.refusal is not None:
            return self.sequencer.refusal.again()
        return OverloadedError(
            f"SQLite is {self._state.lag_entries} entries behind; nothing was stored."
        )

    def _new_waiters(self, window: Window, timeout_ms: int | None) -> WindowWaiters:
        wait_ms = min(timeout_ms or self._ack_timeout_ms, self._ack_timeout_ms)
        return WindowWaiters(window, self.pending, self.clock, self._counters, wait_ms)

    async def _settled(self, refusal: Refusal) -> SebError:
        """The refusal's error, once what it rests on is stored; or why that never will be."""
        try:
            await self.once_stored(refusal.after)
        except OutcomeUnknownError:
            return StoreUnavailableError("An earlier change is not stored yet; try again.")
        return refusal.error

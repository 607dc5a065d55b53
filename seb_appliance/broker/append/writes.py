"""The only way to write: a command is checked against everything admitted before it, joins the
open window, and its caller is called back when the window is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

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
from seb_appliance.quantities import counted


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """What a command added to `window`, which may stay open for `linger_ms` more."""

    window: Window
    result: Any
    linger_ms: int
    early_flush: bool = False


UNTIL_KNOWN_MS: Final = 1 << 31  # a timeout: weeks, by when the process has ended


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
        patience_ms: int | None = None,
    ) -> Admitted | Duplicate | None:
        """Decide a command. If it is admitted, `on_done` is called once: when it is stored, when
        it never will be, or after `timeout_ms` (at most, and by default, the appliance's
        acknowledgement timeout; UNTIL_KNOWN_MS: not before it is known). Otherwise `on_done` is
        never called. `patience_ms`: for how long its caller waits, which may end a stretched window
        earlier; by default `timeout_ms`.

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
        if timeout_ms is not None and (
            timeout_ms < self._ack_timeout_ms or timeout_ms == UNTIL_KNOWN_MS
        ):
            waiters = self._new_waiters(decided.window, timeout_ms)
        elif waiters is None or waiters.window is not decided.window:
            # One timer serves all callers with the default timeout.
            waiters = self._waiters = self._new_waiters(decided.window, None)
        waiters.add(on_done, decided.result, reservation, now_s)
        linger_ms = decided.linger_ms
        patience_ms = timeout_ms if patience_ms is None else patience_ms
        if patience_ms is not None:
            linger_ms = self.linger.within(linger_ms, patience_ms)
        self.sequencer.close_within(
            decided.window, linger_ms / 1000, early=decided.early_flush, now_s=now_s
        )
        return decided

    async def store(
        self,
        command: Command,
        reservation: Reservation,
        timeout_ms: int | None = None,
        patience_ms: int | None = None,
    ) -> Stored | Duplicate | None:
        """`tell`, and wait: what was decided, or raises what `on_done` would be told."""
        ack = AckFuture()
        decided = self.tell(command, reservation, ack, timeout_ms, patience_ms)
        stored = await ack.future
        return stored if isinstance(decided, Admitted) else decided

    def tell(
        self,
        command: Command,
        reservation: Reservation,
        on_done: AckCallback,
        timeout_ms: int | None = None,
        patience_ms: int | None = None,
    ) -> Admitted | Duplicate | None:
        """`submit` of what tells `on_done` in any case, once, perhaps before this returns. A
        duplicate is told as stored, with itself, once its original is. A refusal that rests on
        something pending is told once that is stored. Otherwise OutcomeUnknownError after
        `timeout_ms`."""
        try:
            decided = self.submit(command, reservation, on_done, timeout_ms, patience_ms)
        except Refusal as refusal:
            refused = _Refused(on_done, refusal.error)
            self._tell_once_stored(refusal.after, refused, None)
            return None
        except SebError as error:
            on_done.failed(error)
            return None
        if not isinstance(decided, Admitted):
            after = decided.after if decided is not None else None
            self._tell_once_stored(after, _Repeated(on_done, decided), timeout_ms)
        return decided

    def _tell_once_stored(
        self, window: Window | None, on_done: AckCallback, timeout_ms: int | None
    ) -> None:
        if window is None or window.is_done:
            on_done.stored(None, 0.0, 0.0)
            return
        waiters = self._new_waiters(window, timeout_ms)
        waiters.add(on_done, None, None, self.clock.monotonic_s())

    async def operate(
        self,
        admit: Callable[[Window], object],
        linger_ms: int | None = None,
        owner: str = OPERATOR,
        patience_ms: int | None = None,
    ) -> bool:
        """Store the events that `admit` adds; an operator's (`linger_ms` None) soon. `admit`
        returns False if it has nothing to add. The events are held in `pending` for `owner`.
        `patience_ms`: see `submit`."""
        if linger_ms is None:
            linger_ms = min(limits.OPERATOR_LINGER_MS, self.linger.default_ms)
        reservation = Reservation(self.pending, owner)

        def command() -> Admitted | None:
            reservation.grow(limits.PENDING_CALL_BYTES)
            return self._events(admit, linger_ms, reservation)

        return await self.store(command, reservation, patience_ms=patience_ms) is not None

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
        ack = AckFuture()
        self._tell_once_stored(window, ack, timeout_ms)
        await ack.future

    def _refusal(self) -> SebError:
        if self.stopping:
            return ShuttingDownError("The appliance is stopping; nothing was stored.")
        if self.sequencer.refusal is not None:
            return self.sequencer.refusal.again()
        return OverloadedError(
            f"SQLite is {counted(self._state.lag_entries, 'entry')} behind; nothing was stored."
        )

    def _new_waiters(self, window: Window, timeout_ms: int | None) -> WindowWaiters:
        wait_ms = min(timeout_ms or self._ack_timeout_ms, self._ack_timeout_ms)
        if timeout_ms == UNTIL_KNOWN_MS:
            wait_ms = UNTIL_KNOWN_MS
        return WindowWaiters(window, self.pending, self.clock, self._counters, wait_ms)


class _Repeated:
    """Hands a duplicate to `on_done` once its original is stored."""

    def __init__(self, on_done: AckCallback, decided: Duplicate | None) -> None:
        self._on_done = on_done
        self._decided = decided
        self.failed = on_done.failed

    def stored(self, admitted: object, window_s: float, put_s: float) -> None:  # noqa: ARG002
        self._on_done.stored(self._decided, 0.0, 0.0)


class _Refused:
    """Hands the error of a refusal to `on_done` once what it rests on is stored; or why that never
    will be."""

    def __init__(self, on_done: AckCallback, error: SebError) -> None:
        self._on_done = on_done
        self._error = error

    def stored(self, admitted: object, window_s: float, put_s: float) -> None:  # noqa: ARG002
        self._on_done.failed(self._error)

    def failed(self, error: SebError) -> None:
        if isinstance(error, OutcomeUnknownError):
            error = StoreUnavailableError("An earlier change is not stored yet; try again.")
        self._on_done.failed(error)

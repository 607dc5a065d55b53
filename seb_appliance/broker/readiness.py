"""Readiness: whether this appliance can write, and if not, why."""

from __future__ import annotations

import asyncio

from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.ports import FAILING_FOR_S, Journal, State
from seb_appliance.broker.shares import Shares
from seb_appliance.broker.values import Readiness
from seb_appliance.clock import Clock
from seb_appliance.errors import FencedError, StoreError
from seb_appliance.quantities import counted

# An answer of the bucket proves for so long that no newer writer exists (docs/FORMAT.md).
ANSWER_FRESH_S = 30.0
ANSWER_WITHIN_S = 3.0  # a health check must not hang because the bucket does


class ReadinessCheck:
    def __init__(
        self,
        journal: Journal,
        state: State,
        pending: Shares,
        clock: Clock,
        sequencer: Sequencer,
        *,
        ack_timeout_ms: int,
    ) -> None:
        self._journal = journal
        self._state = state
        self._pending = pending
        self._clock = clock
        self._sequencer = sequencer
        self._ack_timeout_s = ack_timeout_ms / 1000
        self._asking: asyncio.Task[str] | None = None

    async def check(self) -> Readiness:
        """Asks the bucket only if its last answer is over 30 s old."""
        problems: list[str] = []
        if self._is_stale:
            problems += await self._answer()
        failure, standby = self._sequencer.failure, self._sequencer.standby
        if failure is not None:
            problems.append(f"nothing can be written any more: {failure}")
        health = self._journal.health
        if health.failing_since_s is not None:
            failing_s = self._clock.monotonic_s() - health.failing_since_s
            if health.denied or failing_s >= FAILING_FOR_S:
                problems.append(
                    f"the bucket has been failing for {failing_s:.0f} s: {health.failure}"
                )
        # A slow bucket makes windows late too; the callers judge that by their timeout.
        late_s = self._sequencer.late_s
        if late_s >= (self._ack_timeout_s if self._sequencer.is_storing else FAILING_FOR_S):
            problems.append(f"writes are not stored: a window is {late_s:.0f} s past its deadline")
        if self._pending.used >= self._pending.limit:
            problems.append("pending-bytes limit reached")
        if self._state.failure:
            problems.append(f"SQLite cannot be updated: {self._state.failure}")
        if self._state.is_far_behind:
            problems.append(f"SQLite is {counted(self._state.lag_entries, 'entry')} behind")
        return Readiness(problems, standby.detail if standby is not None else "")

    def look_for_newer_writer(self) -> None:
        """Called on reads, so that an idle fenced appliance does not serve old data for ever. Does
        not wait."""
        if self._is_stale and self._sequencer.refusal is None:
            self._ask()

    @property
    def _is_stale(self) -> bool:
        return self._clock.monotonic_s() - self._journal.health.last_success_s > ANSWER_FRESH_S

    def _ask(self) -> asyncio.Task[str]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._confirm(), name="confirm-in-force")
        return self._asking

    async def _answer(self) -> list[str]:
        """The bucket's answer, if it arrives soon. Otherwise the request continues, and the next
        check uses its answer."""
        asking = self._ask()
        await asyncio.wait({asking}, timeout=ANSWER_WITHIN_S)
        if not asking.done():
            return [f"the bucket has not answered within {ANSWER_WITHIN_S:.0f} s"]
        return [asking.result()] if asking.result() else []

    async def _confirm(self) -> str:
        """What is wrong; "" if this appliance is still the writer."""
        try:
            await self._journal.confirm_in_force()
        except FencedError as error:
            self._sequencer.fail(error)
            return error.detail
        except StoreError as error:
            return f"the bucket does not answer: {error.detail}"
        return ""

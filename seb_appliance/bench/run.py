"""One measurement, from the topics it makes to the records it verifies."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from seb_appliance.bench.accounts import Findings
from seb_appliance.bench.connecting import ANSWER_S, BenchError, Caller
from seb_appliance.bench.consuming import (
    Consuming,
    Following,
    Known,
    fill,
    for_each,
    learn,
    read_back,
)
from seb_appliance.bench.meters import Meter
from seb_appliance.bench.plan import SAMPLES_MAX, Pacer, Plan
from seb_appliance.bench.producing import Outcome, Producing
from seb_appliance.bench.result import Measured, merged
from seb_appliance.bench.targets import Target

TICK_S: Final = 0.25
DRAIN_S: Final = 30.0
_CREATED_AT_ONCE: Final = 64

Progress = Callable[[str, float], None]  # a phase, and how much of it is done (0 to 1)


@dataclass(slots=True)
class Conditions:
    """What a measurement takes from outside. `stop`: set to end it early, with a report."""

    stop: asyncio.Event
    progress: Progress
    verify: bool = True
    keep_topics: bool = False
    clock: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time
    on_measuring: Callable[[bool], None] = field(default=lambda _: None)  # began, ended


async def measure(
    plan: Plan, target: Target, conditions: Conditions, known: Sequence[Known] = ()
) -> Measured:
    """One run. `known`: for readers of a server that has its answers already, in place of topics.
    Raises BenchError when nothing could be measured at all."""
    return await _Measurement(plan, target, conditions, known).run()


class _Measurement:
    def __init__(
        self, plan: Plan, target: Target, conditions: Conditions, known: Sequence[Known]
    ) -> None:
        self._plan = plan
        self._target = target
        self._conditions = conditions
        self._known = known
        self._created_us = time.time_ns() // 1000
        prefix = f"bench.{secrets.token_hex(4)}"
        numbers = range(plan.topics)
        self._topics = [f"{prefix}.{number}" for number in numbers if plan.workload != "consume"]
        self._filled = [f"{prefix}.filled.{number}" for number in numbers if self._must_fill]
        self._producing: Producing | None = None
        self._following: Following | None = None
        self._consuming: Consuming | None = None
        self._findings = Findings()
        self._generator_cpu = 0.0
        self._is_verified = False
        self._failure: BenchError | None = None

    @property
    def _must_fill(self) -> bool:
        return self._plan.workload in ("consume", "mixed") and not self._known

    async def run(self) -> Measured:
        try:
            await self._prepare()
            await self._load()
            await self._verify()
            failure = self._outcome().failure
            if failure is not None and not any(meter.requests for meter in self._meters()):
                raise failure
        finally:
            self._close()
            await self._clean_up()
        return Measured(
            meters=self._meters(),
            outcome=self._outcome(),
            findings=self._findings if self._is_verified else None,
            generator_cpu=self._generator_cpu,
        )

    async def _prepare(self) -> None:
        plan, target, clock = self._plan, self._target, self._conditions.clock
        await self._create([*self._topics, *self._filled])
        if self._filled or self._known:
            self._conditions.progress("filling topics", 0.0)
            known = self._known or await self._fill()
            checks = not self._known
            self._consuming = Consuming(target, known, self._readers, clock=clock, checks=checks)
            await self._consuming.open()
        if self._topics:
            self._producing = Producing(
                plan, target, self._topics, clock=clock, created_us=self._created_us
            )
            await self._producing.open()
            if plan.follows:
                self._following = Following(
                    plan, target, self._topics, self._producing.accounts, clock=clock
                )
                await self._following.open()

    @property
    def _readers(self) -> int:
        plan = self._plan
        return plan.connections if plan.workload == "consume" else plan.consumers

    async def _create(self, topics: Sequence[str]) -> None:
        made = 0

        async def create(caller: Caller, index: int) -> None:
            nonlocal made
            request = self._target.create(topics[index])
            if request is not None:
                await caller.good(request)
            made += 1
            self._conditions.progress("creating topics", made / len(topics))

        await for_each(self._target, range(len(topics)), create, _CREATED_AT_ONCE)

    async def _fill(self) -> list[Known]:
        accounts = await fill(self._plan, self._target, self._filled, self._created_us)
        known, found = await learn(self._plan, self._target, self._filled, accounts)
        self._findings.add(found)
        if not known:
            raise BenchError("there is nothing to read: " + "; ".join(found.mistakes))
        return known

    async def _load(self) -> None:
        plan, clock, producing = self._plan, self._conditions.clock, self._producing
        begin_s = clock()
        measured_from_s = begin_s + plan.warm_up_s
        end_s = measured_from_s + plan.duration_s
        pacer = None
        if self._following is not None:
            self._following.measured_from_s = measured_from_s
        if self._consuming is not None:
            self._consuming.begin(measured_from_s, end_s)
        if producing is not None:
            producing.begin(begin_s, measured_from_s, end_s)
            if producing.schedule.is_open_loop:
                idle = producing.idle
                pacer = Pacer(producing.schedule, producing.wake, lambda: bool(idle), clock=clock)
                pacer.start()
        try:
            await self._watch(measured_from_s, end_s)
            self._end_early()
            await self._drain()
        finally:
            if pacer is not None:
                pacer.stop()

    async def _watch(self, measured_from_s: float, end_s: float) -> None:
        """Wait for the end, marking what was done by then, or until something ends it early."""
        clock, cpu = self._conditions.clock, self._conditions.cpu
        length_s = end_s - measured_from_s
        if await self._ended_before(measured_from_s):
            return
        cpu_began, began_s = cpu(), clock()
        self._conditions.on_measuring(True)
        self._mark()
        tick = 1
        is_ended = False
        while not is_ended and not self._has_enough() and clock() < end_s:
            is_ended = await self._ended_before(min(end_s, measured_from_s + tick * TICK_S))
            tick += 1
            self._mark()
            self._conditions.progress("measuring", (clock() - measured_from_s) / length_s)
            for part in self._parts():
                part.check_time_outs(ANSWER_S)
        self._conditions.on_measuring(False)
        self._generator_cpu = (cpu() - cpu_began) / max(1e-9, clock() - began_s)

    def _has_enough(self) -> bool:
        """More latencies than may be kept: the run ends early, and is whole."""
        return any(len(meter.latencies) > SAMPLES_MAX for meter in self._meters())

    async def _ended_before(self, moment_s: float) -> bool:
        """Wait until then; whether the run was stopped or has failed."""
        left_s = max(0.0, moment_s - self._conditions.clock())
        waits = [asyncio.ensure_future(self._conditions.stop.wait())]
        failures = [part.failed for part in self._parts()]
        if self._following is not None:
            failures.append(self._following.failed)
        waits += [asyncio.ensure_future(failed.wait()) for failed in failures]
        done, pending = await asyncio.wait(
            waits, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
        )
        for wait in pending:
            wait.cancel()
        return bool(done)

    def _parts(self) -> list[Producing | Consuming]:
        return [part for part in (self._producing, self._consuming) if part is not None]

    def _end_early(self) -> None:
        """Nothing more is begun, also when the time is not over."""
        now_s = self._conditions.clock()
        if self._producing is not None:
            self._producing.schedule.end(now_s)
        if self._consuming is not None:
            self._consuming.end_s = min(self._consuming.end_s, now_s)

    async def _drain(self) -> None:
        """Wait for the answers to what was sent, and for what was due to be sent."""
        self._conditions.progress("waiting for the last answers", 0.0)
        give_up_s = self._conditions.clock() + DRAIN_S
        while not all(part.is_quiet for part in self._parts()):
            has_failed = any(part.failed.is_set() for part in self._parts())
            if has_failed or self._conditions.clock() > give_up_s:
                break
            await asyncio.sleep(0.01)

    async def _verify(self) -> None:
        """What was measured is worth telling, also when the target cannot be read any more."""
        if self._outcome().failure is not None or not self._conditions.verify:
            return
        self._conditions.progress("verifying", 0.0)
        try:
            await self._check_records()
        except BenchError as error:
            self._failure = error
        else:
            self._is_verified = True

    async def _check_records(self) -> None:
        if self._following is not None:
            self._findings.add(await self._following.finish(DRAIN_S))
        elif self._producing is not None:
            accounts = self._producing.accounts
            self._producing.close()
            found = await read_back(self._target, self._plan, self._topics, accounts)
            self._findings.add(found)
        if self._consuming is not None:
            self._findings.add(self._consuming.findings)

    def _outcome(self) -> Outcome:
        followed = [] if self._following is None else [self._following.outcome]
        outcome = merged([*(part.outcome for part in self._parts()), *followed])
        outcome.failure = outcome.failure or self._failure
        return outcome

    def _mark(self) -> None:
        now_s = self._conditions.clock()
        for meter in self._meters():
            meter.mark(now_s)

    def _meters(self) -> list[Meter]:
        parts = (self._producing, self._following, self._consuming)
        return [part.meter for part in parts if part is not None]

    def _close(self) -> None:
        for part in (self._producing, self._following, self._consuming):
            if part is not None:
                part.close()

    async def _clean_up(self) -> None:
        """Delete our topics. A target that is gone has nothing to delete."""
        if self._conditions.keep_topics:
            return
        topics = [*self._topics, *self._filled]

        async def delete(caller: Caller, index: int) -> None:
            request = self._target.delete(topics[index])
            if request is not None:
                await caller.ask(request)

        with contextlib.suppress(BenchError):
            await for_each(self._target, range(len(topics)), delete, _CREATED_AT_ONCE)

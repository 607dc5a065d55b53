"""Consumers that wait at the log end: how long a record takes from its producer to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from seb_appliance.bench.accounts import Account, Findings, TopicCheck
from seb_appliance.bench.connecting import Caller, close_all, connect
from seb_appliance.bench.failures import BenchError
from seb_appliance.bench.meters import Meter
from seb_appliance.bench.plan import Plan
from seb_appliance.bench.producing import Outcome
from seb_appliance.bench.reading_back import ask_records
from seb_appliance.bench.targets import Target

WAIT_MS: Final = 5_000


class Following:
    """Each consumer reads each topic, on a connection of its own, from the first record on."""

    def __init__(
        self,
        plan: Plan,
        target: Target,
        topics: Sequence[str],
        accounts: Sequence[Account],
        *,
        clock: Callable[[], float],
    ) -> None:
        self.meter = Meter("end to end")
        self.measured_from_s = float("inf")
        self._plan = plan
        self._target = target
        self._topics = topics
        self._accounts = accounts
        self._clock = clock
        self._checks = [
            TopicCheck(topic, name, plan.records_per_request, plan.connections)
            for _ in range(plan.consumers)
            for topic, name in enumerate(topics)
        ]
        self.outcome = Outcome()
        self.failed = asyncio.Event()
        self._callers: list[Caller] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Raises BenchError."""
        count = len(self._checks)
        self._callers = await connect(self._target.address, lambda _: Caller(), count)
        self._tasks = [
            asyncio.create_task(self._follow(caller, check, self._topics[i % len(self._topics)]))
            for i, (caller, check) in enumerate(zip(self._callers, self._checks, strict=True))
        ]

    async def finish(self, within_s: float) -> Findings:
        """Wait until everybody has everything that was acknowledged, or the time is over; then
        what the checks found. Raises BenchError of a consumer that could not go on."""
        give_up_s = self._clock() + within_s
        while not self._have_everything() and self._clock() < give_up_s:
            if any(task.done() for task in self._tasks):
                break
            await asyncio.sleep(0.02)
        if self.outcome.failure is not None:
            raise self.outcome.failure
        self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        found = Findings()
        for check in self._checks:
            found.add(check.settle(self._accounts))
        return found

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        close_all(self._callers)

    def _have_everything(self) -> bool:
        told = sum(account.requests() for account in self._accounts)
        seen = sum(check.requests_complete() for check in self._checks)
        return seen >= told * self._plan.consumers

    async def _follow(self, caller: Caller, check: TopicCheck, topic: str) -> None:
        offset = 0
        latencies, accounts = self.meter.latencies, self._accounts
        while True:
            try:
                read = await ask_records(caller, self._target, topic, offset, WAIT_MS)
            except BenchError as error:
                self.outcome.failure = error
                self.failed.set()
                return
            now_s = self._clock()
            if isinstance(read, str):
                check.findings.wrong_one(read)
                return
            for what in check.take(read.values, read.offsets):
                times = accounts[what.producer].intended_s
                # A number that was never sent is found out by the check, at the end.
                if what.number < len(times) and times[what.number] >= self.measured_from_s:
                    latencies.add(now_s - times[what.number])
            self.meter.count(len(read.values), sum(map(len, read.values)))
            offset = read.next_offset

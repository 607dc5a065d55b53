"""Producers: connections that send records, each one request at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from seb_appliance.bench.accounts import Account, BodyMaker
from seb_appliance.bench.connecting import BenchError, connect, open_one
from seb_appliance.bench.exchange import Exchange
from seb_appliance.bench.meters import Meter
from seb_appliance.bench.plan import Plan, Schedule
from seb_appliance.bench.targets import Target

REFUSED_PAUSE_S: Final = 0.1
LATE_S: Final = 0.005
_CREATED: Final = 201


@dataclass(slots=True)
class Outcome:
    """What became of requests that were not acknowledged at once. `refused`: how often, by code.
    `late`: no connection was free when they were due; `generator_late`: one was."""

    refused: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    late: int = 0
    generator_late: int = 0
    not_sent: int = 0
    failure: BenchError | None = None  # why the run could not go on


class Producing:
    """All producers of a run. `topics` are names; `clock` gives seconds."""

    def __init__(
        self,
        plan: Plan,
        target: Target,
        topics: Sequence[str],
        *,
        clock: Callable[[], float],
        created_us: int,
    ) -> None:
        self.plan = plan
        self.target = target
        self.clock = clock
        self.schedule = Schedule(plan.requests_per_s)
        self.meter = Meter("acknowledged")
        self.outcome = Outcome()
        self.measured_from_s = 0.0
        self.idle: list[Producer] = []
        self.accounts = [Account(number) for number in range(plan.connections)]
        self.producers: list[Producer] = []
        self.failed = asyncio.Event()
        self._is_over = False
        self._reopening: set[asyncio.Task[None]] = set()
        self._bodies = [
            target.bodies(plan, number, created_us) for number in range(plan.connections)
        ]
        sample = self._bodies[0]
        self.body_bytes = len(sample.make(0))
        self.heads = [
            target.produce_head(topic, sample.content_type, self.body_bytes) for topic in topics
        ]

    async def open(self) -> None:
        """Raises BenchError."""
        self.producers = await connect(self.target.address, self._make, self.plan.connections)

    def begin(self, begin_s: float, measured_from_s: float, end_s: float) -> None:
        self.measured_from_s = measured_from_s
        self.schedule.begin(begin_s, end_s)
        self.idle.clear()
        for producer in self.producers:
            producer.take(self.clock())

    def wake(self) -> None:
        """Send what is due, as long as somebody can."""
        now_s = self.clock()
        while self.idle and self.schedule.next_s <= now_s:
            self.idle.pop().take(now_s, was_idle=True)

    def late(self, somebody_was_idle: bool) -> None:
        """A request is sent long after it was due."""
        if somebody_was_idle:
            self.outcome.generator_late += 1
        else:
            self.outcome.late += 1

    def check_time_outs(self, longest_s: float) -> None:
        now_s = self.clock()
        for producer in self.producers:
            if producer.busy_since_s is not None and now_s - producer.busy_since_s > longest_s:
                producer.abort()

    @property
    def is_quiet(self) -> bool:
        """Nothing is on its way, and nothing is due."""
        busy = any(producer.busy_since_s is not None for producer in self.producers)
        return not busy and (not self.schedule.is_open_loop or self.schedule.next_s == float("inf"))

    def close(self) -> None:
        """What was due and never sent counts with the time that it has waited."""
        self._is_over = True
        now_s = self.clock()
        for due_s in self.schedule.late(now_s):
            self.outcome.not_sent += 1
            if due_s >= self.measured_from_s:
                self.meter.latencies.add(now_s - due_s)
        for task in self._reopening:
            task.cancel()
        for producer in self.producers:
            producer.abort()

    def reopen(self, producer: Producer) -> None:
        """Connect a producer again, unless the run is over."""
        if self._is_over:
            return
        task = asyncio.ensure_future(self._reopen(producer))
        self._reopening.add(task)
        task.add_done_callback(self._reopening.discard)

    async def _reopen(self, producer: Producer) -> None:
        try:
            await open_one(self.target.address, lambda: producer)
        except BenchError as error:
            self.outcome.failure = error
            self.failed.set()
            return
        producer.take(self.clock())

    def _make(self, number: int) -> Producer:
        return Producer(self, self.accounts[number], self._bodies[number])


class Producer(Exchange):
    """One connection. To which topic a request goes follows from its number."""

    def __init__(self, all_of_them: Producing, account: Account, bodies: BodyMaker) -> None:
        super().__init__()
        self._all = all_of_them
        self._account = account
        self._bodies = bodies
        self._number = -1
        self._topic = 0
        self._intended_s = 0.0

    def take(self, now_s: float, *, was_idle: bool = False) -> None:
        """Send a request if one is due; else wait to be woken."""
        everyone = self._all
        intended_s = everyone.schedule.take(now_s)
        if intended_s is None:
            everyone.idle.append(self)
            return
        if now_s - intended_s > LATE_S:
            everyone.late(was_idle or bool(everyone.idle))
        times = self._account.intended_s
        number = self._number = len(times)
        times.append(intended_s)
        self._intended_s = intended_s
        heads = everyone.heads
        topic = (self._account.producer + number * everyone.plan.connections) % len(heads)
        self._topic = topic
        self.send(heads[topic] + self._bodies.make(number), now_s)

    def answered(self, status: int, head: bytes, body: bytes) -> None:  # noqa: ARG002
        everyone = self._all
        now_s = everyone.clock()
        if status != _CREATED:
            self._refused(status, body)
            return
        try:
            offset = everyone.target.first_offset(body)
        except ValueError:
            everyone.outcome.refused["201 without an offset"] += 1
            self._account.unknown.add(self._number)
        else:
            self._account.acknowledge(self._topic, self._number, offset)
            everyone.meter.count(everyone.plan.records_per_request, everyone.body_bytes)
            if self._intended_s >= everyone.measured_from_s:
                everyone.meter.latencies.add(now_s - self._intended_s)
        self.take(now_s)

    def lost(self) -> None:
        everyone = self._all
        if self.busy_since_s is not None:
            everyone.outcome.lost += 1
            self._account.unknown.add(self._number)
        elif self in everyone.idle:
            everyone.idle.remove(self)
        everyone.reopen(self)

    def _refused(self, status: int, body: bytes) -> None:
        """Count the refusal, and try again after a pause."""
        try:
            problem = msgspec.json.decode(body, type=dict[str, object])
        except msgspec.DecodeError:
            problem = {}
        if problem.get("side_effects") != "none":
            self._account.unknown.add(self._number)
        self._all.outcome.refused[f"{status} {problem.get('code', '')}".strip()] += 1
        asyncio.get_running_loop().call_later(REFUSED_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        if self.transport is not None and self not in self._all.idle:
            self.take(self._all.clock())

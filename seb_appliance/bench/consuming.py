"""Readers of records that are there already, each asking again as soon as it was answered.

Every answer is read and checked record by record once, before the run; in the run, the same
request must bring the same bytes, which one checksum of the whole body shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.bench.accounts import Account, Findings, TopicCheck
from seb_appliance.bench.connecting import BenchError, Caller, close_all, connect
from seb_appliance.bench.exchange import LargeExchange
from seb_appliance.bench.meters import Meter
from seb_appliance.bench.plan import Plan
from seb_appliance.bench.producing import Outcome
from seb_appliance.bench.targets import Read, Target
from seb_appliance.errors import SebError

# Reading topics from their beginning to their end, and checking each record.


_AT_ONCE: Final = 8
_RECORDS_PER_READ: Final = 10_000
_BUSY: Final = (429, 503)
_TRIES: Final = 50
_PAUSE_S: Final = 0.2


async def read_back(
    target: Target, plan: Plan, topics: Sequence[str], accounts: Sequence[Account]
) -> Findings:
    """Everything in these topics against what was acknowledged. Raises BenchError."""
    found = Findings()

    async def check(caller: Caller, index: int) -> None:
        topic = TopicCheck(index, topics[index], plan.records_per_request, len(accounts))
        offset = 0
        while True:
            read = await ask_records(caller, target, topics[index], offset)
            if isinstance(read, str):
                topic.findings.wrong_one(read)
                break
            topic.take(read.values, read.offsets)
            if read.next_offset == offset:
                break
            offset = read.next_offset
        found.add(topic.settle(accounts))

    await for_each(target, range(len(topics)), check)
    return found


async def ask_records(
    caller: Caller, target: Target, topic: str, offset: int, wait_ms: int = 0
) -> Read | str:
    """Records of a topic from `offset` on, or what is wrong with the answer. Asks again for a while
    when the target says that it has too much to do. Raises BenchError."""
    most = _RECORDS_PER_READ
    request = target.read(topic, "batch", offset, most, wait_ms)
    for _ in range(_TRIES):
        answer = await caller.ask(request)
        if answer.status not in _BUSY:
            break
        await asyncio.sleep(_PAUSE_S)
    if not answer.is_good:
        raise BenchError(answer.words())
    try:
        return target.records("batch", offset, answer.head, answer.body)
    except (ValueError, SebError) as error:
        return f"{topic}: the answer for offset {offset} cannot be read ({error})"


async def for_each(
    target: Target,
    numbers: Sequence[int],
    act: Callable[[Caller, int], Awaitable[None]],
    at_once: int = _AT_ONCE,
) -> None:
    """`act` for each number, a few at a time, each with a connection. Raises what it raises."""
    callers = await connect(target.address, lambda _: Caller(), min(at_once, len(numbers)))
    left = iter(numbers)

    async def work(caller: Caller) -> None:
        for number in left:
            await act(caller, number)

    try:
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(work(caller))
    except* Exception as failures:
        raise failures.exceptions[0] from failures
    finally:
        close_all(callers)


FILL_BYTES: Final = 32 * limits.MIB
FILL_REQUESTS_MAX: Final = 64
FILL_RECORDS: Final = 1_024
SINGLE_READS: Final = 1_024


@dataclass(frozen=True, slots=True)
class Known:
    """A request, and its one right answer: `records` in a body with this CRC-32C."""

    request: bytes
    records: int
    size_bytes: int
    crc: int


def filling(plan: Plan) -> Plan:
    """How the topics are filled: in record batches, as many records in each as one read takes."""
    count = plan.records_per_request
    if plan.body == "single":
        count = max(1, min(FILL_RECORDS, limits.MIB // plan.record_bytes))
    return replace(plan, body="batch", records_per_request=count, connections=plan.topics)


async def fill(
    wanted: Plan, target: Target, topics: Sequence[str], created_us: int
) -> list[Account]:
    """Put records into each topic, one producer for each. Raises BenchError."""
    plan = filling(wanted)
    per_request = plan.records_per_request * plan.record_bytes
    most = FILL_REQUESTS_MAX
    if wanted.body == "single":
        most = -(-SINGLE_READS // plan.records_per_request // len(topics))
    requests = max(1, min(most, FILL_BYTES // per_request // len(topics)))
    accounts = [Account(number) for number in range(len(topics))]

    async def produce(caller: Caller, index: int) -> None:
        bodies = target.bodies(plan, index, created_us)
        for number in range(requests):
            body = bodies.make(number)
            request = target.produce_head(topics[index], bodies.content_type, len(body)) + body
            answer = await caller.good(request)
            accounts[index].acknowledge(index, number, target.first_offset(answer.body))

    await for_each(target, range(len(topics)), produce)
    return accounts


async def learn(
    plan: Plan, target: Target, topics: Sequence[str], accounts: Sequence[Account]
) -> tuple[list[Known], Findings]:
    """What each request of the readers must be answered with, from answers that were checked
    record by record. Raises BenchError."""
    known: list[list[Known]] = [[] for _ in topics]
    found = Findings()
    per_request = filling(plan).records_per_request

    async def read_all(caller: Caller, index: int) -> None:
        check = TopicCheck(index, topics[index], per_request, len(topics))
        told = accounts[index].acknowledged[index]
        end = told.offsets[-1] + per_request
        begin = told.offsets[0]
        crcs: dict[int, int] = {}
        if plan.body == "single":
            crcs = await _check_whole(caller, target, topics[index], check, begin, end)
            end = min(end, begin + max(1, SINGLE_READS // len(topics)))
        offset = begin
        while offset < end:
            most = 1 if plan.body == "single" else per_request
            request = target.read(topics[index], plan.body, offset, most, 0)
            answer = await caller.good(request)
            try:
                read = target.records(plan.body, offset, answer.head, answer.body)
            except (ValueError, SebError) as error:
                raise BenchError(
                    f"{topics[index]}: an answer that cannot be read ({error})"
                ) from error
            crc = crc32c(target.lasting(answer.head, answer.body))
            if plan.body != "single":
                check.take(read.values, read.offsets)
            elif crc != crcs.get(offset):
                check.findings.wrong_one(f"{topics[index]}: another record at offset {offset}")
            if read.next_offset <= offset:
                check.findings.wrong_one(f"{topics[index]}: nothing at offset {offset}")
                break
            known[index].append(Known(request, len(read.values), len(answer.body), crc))
            offset = read.next_offset
        found.add(check.settle(accounts))

    await for_each(target, range(len(topics)), read_all)
    return [one for of_topic in known for one in of_topic], found


async def _check_whole(
    caller: Caller, target: Target, topic: str, check: TopicCheck, begin: int, end: int
) -> dict[int, int]:
    """Check all records together; by offset, the CRC-32C of each value."""
    crcs: dict[int, int] = {}
    offset = begin
    while offset < end:
        read = await ask_records(caller, target, topic, offset)
        if isinstance(read, str):
            raise BenchError(read)
        check.take(read.values, read.offsets)
        crcs.update(zip(read.offsets, map(crc32c, read.values), strict=True))
        if read.next_offset <= offset:
            break
        offset = read.next_offset
    return crcs


class Consuming:
    """`connections` readers. With `checks` off (a null server) only status and length count."""

    def __init__(
        self,
        target: Target,
        known: Sequence[Known],
        connections: int,
        *,
        clock: Callable[[], float],
        checks: bool = True,
    ) -> None:
        self.meter = Meter("read")
        self.findings = Findings()
        self.outcome = Outcome()
        self.clock = clock
        self.checks = checks
        self.known = known
        self.measured_from_s = 0.0
        self.end_s = 0.0
        self.failed = asyncio.Event()
        self.target = target
        self._connections = connections
        self._readers: list[Reader] = []
        self._is_over = False

    async def open(self) -> None:
        """Raises BenchError."""
        self._readers = await connect(
            self.target.address, lambda number: Reader(self, number), self._connections
        )

    def begin(self, measured_from_s: float, end_s: float) -> None:
        self.measured_from_s, self.end_s = measured_from_s, end_s
        for reader in self._readers:
            reader.ask()

    def check_time_outs(self, longest_s: float) -> None:
        now_s = self.clock()
        for reader in self._readers:
            if reader.busy_since_s is not None and now_s - reader.busy_since_s > longest_s:
                reader.abort()

    @property
    def is_quiet(self) -> bool:
        return all(reader.busy_since_s is None for reader in self._readers)

    def lost_one(self) -> None:
        """A connection ended that nobody closed: the run is over."""
        if self._is_over:
            return
        self.outcome.lost += 1
        self.outcome.failure = BenchError("a reader's connection was closed", reachable=False)
        self.failed.set()

    def close(self) -> None:
        self._is_over = True
        for reader in self._readers:
            reader.abort()


class Reader(LargeExchange):
    def __init__(self, all_of_them: Consuming, number: int) -> None:
        super().__init__()
        self._all = all_of_them
        self._next = number * 7  # readers begin at different places
        self._asked: Known | None = None
        self._sent_s = 0.0

    def ask(self) -> None:
        now_s = self._all.clock()
        if now_s >= self._all.end_s:
            return
        known = self._all.known
        asked = self._asked = known[self._next % len(known)]
        self._next += 1
        self._sent_s = now_s
        self.send(asked.request, now_s)

    def answered(self, status: int, head: bytes, body: memoryview) -> None:
        everyone, asked = self._all, self._asked
        assert asked is not None
        if status != 200:
            everyone.outcome.refused[str(status)] += 1
        elif len(body) != asked.size_bytes or (
            everyone.checks and crc32c(everyone.target.lasting(head, body)) != asked.crc
        ):
            everyone.findings.wrong_one("a reader got other bytes than before")
        else:
            everyone.meter.count(asked.records, len(body))
            if self._sent_s >= everyone.measured_from_s:
                everyone.meter.latencies.add(everyone.clock() - self._sent_s)
        self.ask()

    def lost(self) -> None:
        self._all.lost_one()


# Consumers that wait at the log end: how long a record takes from its producer to them.


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

"""The delays of a queue against a plain model: one list of all records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from seb_appliance import limits
from seb_appliance.broker.delays.delays import Delays
from seb_appliance.broker.delays.queue_delays import QueueDelays
from seb_appliance.broker.ports import DelayRange
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.deliveries import Deliveries, Out
from seb_appliance.broker.queues.progress import Progress
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.formats.operations import RecordsDelayed
from seb_appliance.formats.queues.queues import Delay, QueueSettings
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.fakes import FakeClock

TOPIC = 1
SECOND = 1_000_000
# Seconds until a range of so many records is due; 0: not delayed; -1: the bucket was slow.
RANGES = st.lists(st.tuples(st.sampled_from([0, -1, 1, 5, 5, 60]), st.integers(1, 4)), max_size=6)


@dataclass
class Record:
    due_us: int = 0
    state: str = "waits"  # or out, acked


class Rows:
    """A state that knows everything at once. `meanwhile` is called while somebody waits for it."""

    def __init__(self) -> None:
        self.rows: list[DelayRange] = []
        self.meanwhile: list[Callable[[], None]] = []

    async def delays_by_time(self, spans, after, most):
        return self.found(sorted(one for one in self.rows if one[:2] > after)[:most])

    async def delays_by_offset(self, spans, offset, most):
        found = [one for one in self.rows if one.end > offset]
        return self.found(sorted(found, key=lambda one: one.first)[:most])

    def found(self, rows: list[DelayRange]) -> list[DelayRange]:
        while self.meanwhile:
            self.meanwhile.pop()()
        return rows


class DelaysModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(limits, "DELAYS_PAGE", 2)]
        for one in self.patches:
            one.start()
        self.clock, self.rows, self.records = FakeClock(), Rows(), list[Record]()
        self.topic = Topic(TOPIC, "t", 0, TopicSettings())
        self.delays = Delays([], {TOPIC: self.topic}.get, AllShares())
        self.progress = Progress()
        self.begin()

    def teardown(self) -> None:
        for one in self.patches:
            one.stop()

    def begin(self) -> None:
        self.queue = QueueDelays(self.delays, self.rows, self.clock)  # type: ignore[arg-type]
        settings_ = QueueSettings(topics=("t",))
        self.deliveries = Deliveries(settings_, {TOPIC: self.progress})

    @rule(ranges=RANGES)
    def append(self, ranges: list[tuple[int, int]]) -> None:
        made, now_us = [], self.clock.wall_us()
        for seconds, count in ranges:
            due_us = now_us + seconds * SECOND if seconds else 0
            if seconds:
                made.append(Delay(len(self.records), count, due_us))
            self.records += [Record(due_us) for _ in range(count)]
        if made:
            self.rows.rows += [DelayRange(d.due_us, d.offset, d.offset + d.count) for d in made]
            self.delays.apply(RecordsDelayed(topic_id=TOPIC, delays=tuple(made)))

    @rule(ranges=RANGES)
    def append_while_it_reads(self, ranges: list[tuple[int, int]]) -> None:
        self.rows.meanwhile.append(lambda: self.append(ranges))

    @rule(seconds=st.sampled_from([1, 4, 10, 100]))
    def time_passes(self, seconds: int) -> None:
        self.clock.now_s += seconds

    @rule(seconds=st.sampled_from([-30, -3, 3, 30]))
    def the_clock_is_set(self, seconds: int) -> None:
        self.clock.wall_offset_us += seconds * SECOND

    @rule(room=st.integers(1, 5), looks=st.sampled_from([1, 2, 3, 1_000]))
    def take(self, room: int, looks: int) -> None:
        """`room` at a time, as LiveQueue looks for it."""
        if not asyncio.run(self.found_nothing(room, looks)):
            return
        now_us = self.clock.wall_us()
        for offset, record in enumerate(self.records):
            assert record.state != "waits" or record.due_us > now_us, (offset, record)

    async def found_nothing(self, room: int, looks: int) -> bool:
        """Whether it came to an end."""
        for _ in range(looks):
            await self.queue.collect(self.deliveries, room)
            found = [place.offset for place in self.deliveries.due]
            assert len(found) <= room
            self.deliveries.due.forget(TOPIC)
            if not found:
                new = self.deliveries.new(TOPIC, len(self.records))
                if new is None:
                    return True
                if self.queue.concern(self.topic):
                    new = await self.queue.before(self.topic, new, self.deliveries)
                    if new is None:
                        continue
                found = list(range(new[0], min(new[1], new[0] + room)))
                self.deliveries.pass_over(TOPIC, found[-1] + 1)
            for offset in found:
                record = self.records[offset]
                assert record.state == "waits", (offset, record)
                assert record.due_us <= self.clock.wall_us(), (offset, record)
                record.state = "out"
                self.deliveries.out.add(Place(TOPIC, offset), Out(None, 1, 0, 1, 0.0))
        return False

    @rule(every=st.integers(1, 3))
    def acknowledge(self, every: int) -> None:
        for offset, record in list(enumerate(self.records))[::every]:
            if record.state == "out":
                record.state = "acked"
                self.deliveries.out.pop(Place(TOPIC, offset))
                self.progress.settle(offset, offset + 1)
                self.deliveries.progress(TOPIC).settle(offset, offset + 1)

    @rule(really=st.integers(0, 3))
    def restart(self, really: int) -> None:
        if not really:
            self.begin()
            for record in self.records:
                record.state = "waits" if record.state == "out" else record.state

    @rule()
    def forget_what_no_queue_needs(self) -> None:
        until_us = min(
            self.clock.wall_us() - 60 * SECOND,
            dict(self.queue.needed()).get(TOPIC, limits.OFFSET_MAX) - 1,
        )
        for one in [one for one in self.rows.rows if one.due_us <= until_us]:
            self.rows.rows.remove(one)
            for record in self.records[one.first : one.end]:
                record.due_us = 0

    @invariant()
    def it_looks_again_when_the_next_one_is_due(self) -> None:
        now_s, now_us = self.clock.now_s, self.clock.wall_us()
        passed = self.records[: self.deliveries.cursor(TOPIC)]
        due = [r.due_us for r in passed if r.state == "waits" and r.due_us > now_us]
        if due and not self.queue.is_due(now_us):
            next_s = self.queue.next_s((now_s, now_us))
            assert next_s is not None
            assert next_s <= now_s + min(30.0, (min(due) - now_us) / SECOND) + 0.001


DelaysModel.TestCase.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
TestDelays = DelaysModel.TestCase

"""What people and programs are told of a queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from seb_appliance.broker.delays.queue_delays import QueueDelays
from seb_appliance.broker.groups.groups import Lag
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.deliveries import Aside, Deliveries, Out
from seb_appliance.broker.queues.live_queue import LiveQueue
from seb_appliance.broker.queues.progress import Progress, Queue
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import Patterns
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.formats.queues.queues import QueueSettings
from seb_appliance.tasks import in_slices

# What became of a delivery that a worker named: done; its record was settled before; or its lease
# has ended, so that the record is or was handed out again.
Result = Literal["ok", "settled", "lease_ended"]


@dataclass(frozen=True, slots=True)
class QueueTopicView:
    """`waiting`: records that are not settled, those in flight included. `oldest_s`: the age of the
    oldest of them, 0 if there is none. `delayed`: of the topic, not due yet, or until lately."""

    topic: str
    topic_id: int
    waiting: int
    oldest_s: float
    delayed: int
    acked: int
    rejected: int
    lost: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """`in_flight`: out with workers; `retrying`: waiting for their retry; `parked`: behind an
    earlier one of their record key; `doomed`: to become dead letters. `failure`: why that fails, or
    ""."""

    name: str
    settings: QueueSettings
    owner: str
    set_us: int
    topics: list[QueueTopicView]
    in_flight: int
    retrying: int
    parked: int
    doomed: int
    waiting_takers: int
    failure: str

    @property
    def waiting(self) -> int:
        return sum(topic.waiting for topic in self.topics)

    @property
    def oldest_s(self) -> float:
        return max((topic.oldest_s for topic in self.topics), default=0.0)


_PATTERNS_AT_ONCE: Final = 1_000  # that one matcher has: about a millisecond to make it

HeldState = Literal["in flight", "waits for a retry", "to become a dead letter"]


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A record that was handed out and is not settled. `attempts`: deliveries, with the one that is
    out. `left_s`: until its lease ends, or until it is handed out again. `reason`: of one that is
    to become a dead letter."""

    topic: str
    offset: int
    state: HeldState
    attempts: int
    first_us: int
    left_s: float
    reason: str


class QueueViews:
    """Looks at queues. One that is idle, which nobody has worked on since the start, stays idle:
    what is told of it is what its first taker would find."""

    def __init__(
        self,
        catalog: Catalog,
        live: Mapping[str, LiveQueue],
        delayed: Callable[[], QueueDelays],
        lag: Callable[[Topic, int, int], Awaitable[Lag]],
    ) -> None:
        """`live`: those that are at work, by name."""
        self._catalog = catalog
        self._live = live
        self._delayed = delayed
        self._lag = lag

    async def topics_of(self, queues: Sequence[Queue]) -> dict[str, dict[int, Topic]]:
        """By name of the queue: the topics that it reads, by id. All topics are gone through once
        for many queues with patterns, and not at all for names."""
        found: dict[str, dict[int, Topic]] = {}
        wild = list[tuple[str, str]]()
        async for queue in in_slices(queues):
            live = self._live.get(queue.name)
            if live is not None:
                found[queue.name] = live.topics
                continue
            patterns = queue.settings.topics
            named = (self._catalog.find(one) for one in patterns if "*" not in one)
            found[queue.name] = {topic.topic_id: topic for topic in named if topic is not None}
            wild += ((queue.name, one) for one in patterns if "*" in one)
        for begin in range(0, len(wild), _PATTERNS_AT_ONCE):
            some = wild[begin : begin + _PATTERNS_AT_ONCE]
            matching = Patterns(pattern for _, pattern in some)
            async for topic in in_slices(self._catalog.with_rows()):
                if not topic.deleted:
                    for name in {some[i][0] for i in matching.match(topic.name)}:
                        found[name][topic.topic_id] = topic
        return found

    async def of(self, queues: Sequence[Queue]) -> list[QueueView]:
        topics = await self.topics_of(queues)
        return [await self._view(one, topics[one.name]) async for one in in_slices(queues)]

    async def _view(self, queue: Queue, topics: Mapping[int, Topic]) -> QueueView:
        live, delayed = self._live.get(queue.name), self._delayed()
        progress_on = queue.known_on if live is None else live.deliveries.known_on
        rows = []
        async for topic in in_slices(sorted(topics.values(), key=lambda one: one.name)):
            progress = progress_on(topic.topic_id)
            waiting = progress.unsettled(topic.log_start_offset, topic.log_end_offset)
            numbers = (progress.acked, progress.rejected, progress.lost)
            age_s = await self._oldest_s(topic, progress)
            names = (topic.name, topic.topic_id)
            rows.append(QueueTopicView(*names, waiting, age_s, delayed.count(topic), *numbers))
        states, takers, failure = (0, 0, 0, 0), 0, ""
        if live is not None:
            held = live.deliveries
            states = len(held.out), len(held.waiting), held.parked, len(held.doomed)
            takers, failure = len(live.takers), live.failure
        settings, owner = queue.settings, queue.owner
        return QueueView(queue.name, settings, owner, queue.set_us, rows, *states, takers, failure)

    async def _oldest_s(self, topic: Topic, progress: Progress) -> float:
        end = topic.log_end_offset
        found = progress.settled.gap(topic.log_start_offset, end)
        return 0.0 if found is None else (await self._lag(topic, found[0], end)).seconds


def held_records(
    topics: Mapping[int, Topic], deliveries: Deliveries, now_s: float, most: int
) -> list[HeldRecord]:
    """At most `most` of each state."""
    rows: list[HeldRecord] = []

    def add(
        place: Place, state: HeldState, attempts: int, one: Aside | Out, until_s: float
    ) -> None:
        topic, left_s = topics[place.topic_id].name, max(0.0, until_s - now_s)
        reason = one.reason if isinstance(one, Aside) else ""
        row = HeldRecord(topic, place.offset, state, attempts, one.first_us, left_s, reason)
        rows.append(row)

    for place, out in islice(deliveries.out.items(), most):
        add(place, "in flight", out.attempt, out, out.ends_s)
    for place, aside in islice(deliveries.waiting.items(), most):
        add(place, "waits for a retry", aside.attempts, aside, aside.due_s)
    for place, aside in islice(deliveries.doomed.items(), most):
        add(place, "to become a dead letter", aside.attempts, aside, now_s)
    return rows

"""What people and programs are told of a queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.deliveries import Aside, Deliveries, Out
from seb_appliance.broker.queues.live_queue import LiveQueue
from seb_appliance.broker.queues.progress import Progress, Queue
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


async def describe(
    queue: Queue, live: LiveQueue, oldest_s: Callable[[Topic, Progress], Awaitable[float]]
) -> QueueView:
    topics = []
    async for topic in in_slices(sorted(live.topics.values(), key=lambda one: one.name)):
        progress = live.progress(topic.topic_id)
        waiting = live.deliveries.unsettled(
            topic.topic_id, topic.log_start_offset, topic.log_end_offset
        )
        numbers = (progress.acked, progress.rejected, progress.lost)
        age_s = await oldest_s(topic, progress)
        delayed = live.delayed.count(topic)
        topics.append(QueueTopicView(topic.name, topic.topic_id, waiting, age_s, delayed, *numbers))
    found = live.deliveries
    return QueueView(
        queue.name,
        queue.settings,
        queue.owner,
        queue.set_us,
        topics,
        len(found.out),
        len(found.waiting),
        found.parked,
        len(found.doomed),
        len(live.takers),
        live.failure,
    )


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

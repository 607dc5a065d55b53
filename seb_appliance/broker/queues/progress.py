"""What a queue has done with the records of its topics, as of the last applied entry.

`state/rows/queues.py` keeps the same in SQLite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seb_appliance.broker.queues.intervals import Intervals
from seb_appliance.broker.shares import OPERATOR, Shares
from seb_appliance.formats.operations import (
    QueueDeleted,
    QueueEvent,
    QueueProgressed,
    QueueSet,
)
from seb_appliance.formats.queues.queues import FailedDelivery, QueueSettings


@dataclass(slots=True)
class Progress:
    """On one topic. `settled`: offsets that are never handed out again. `failed` by offset: what
    failed and is not settled. The numbers count records: acknowledged, rejected, and lost because
    the topic was trimmed or compacted before they were handed out."""

    settled: Intervals = field(default_factory=Intervals)
    failed: dict[int, FailedDelivery] = field(default_factory=dict)
    acked: int = 0
    rejected: int = 0
    lost: int = 0

    def apply(self, event: QueueProgressed) -> None:
        """Within one event, a failure comes before what settles its record."""
        for failure in event.failed:
            self.failed[failure.offset] = failure
        for ranges, counter in event.outcomes():
            new = sum(self.settle(one.begin, one.end) for one in ranges)
            setattr(self, counter, getattr(self, counter) + new)

    def settle(self, begin: int, end: int) -> int:
        """How many of these were not settled before."""
        if self.failed:
            if end - begin < len(self.failed):
                for offset in range(begin, end):
                    self.failed.pop(offset, None)
            else:
                for offset in [one for one in self.failed if begin <= one < end]:
                    del self.failed[offset]
        return self.settled.add(begin, end)

    def unsettled(self, log_start: int, log_end: int) -> int:
        """How many offsets of the log are not settled."""
        return log_end - log_start - self.settled.count_from(log_start)

    def copy(self) -> Progress:
        return Progress(
            self.settled.copy(), dict(self.failed), self.acked, self.rejected, self.lost
        )


@dataclass(slots=True)
class Queue:
    """`owner` made it, and it takes the owner's shares. `progress` by topic id: of the topics that
    it reads, and on which something happened. `set_us`: when it was made or changed."""

    name: str
    settings: QueueSettings
    owner: str
    set_us: int
    progress: dict[int, Progress] = field(default_factory=dict)

    def copy(self) -> Queue:
        progress = {topic_id: one.copy() for topic_id, one in self.progress.items()}
        return Queue(self.name, self.settings, self.owner, self.set_us, progress)

    def on(self, topic_id: int) -> Progress:
        found = self.progress.get(topic_id)
        if found is None:
            found = self.progress[topic_id] = Progress()
        return found

    def known_on(self, topic_id: int) -> Progress:
        """As `on`; nothing is added for a topic on which nothing has happened."""
        return self.progress.get(topic_id) or Progress()


class AtRest:
    """Failures of queues that nobody works on: they take memory, and so the share of deliveries of
    who made the queue. What is counted may be too much until somebody works on the queue again."""

    def __init__(self, shares: Shares, queues: Iterable[Queue]) -> None:
        self._shares = shares
        self._held: dict[str, tuple[str, int]] = {}
        for queue in queues:
            self.add(queue.name, queue.owner, queue.progress.values())

    def add(self, name: str, owner: str, progress: Iterable[Progress]) -> None:
        failures = sum(len(one.failed) for one in progress)
        self._held[name] = owner, failures
        self._shares.take_anyway(owner, failures)

    def remove(self, name: str) -> None:
        """Somebody works on it, or it is deleted."""
        owner, failures = self._held.pop(name, (OPERATOR, 0))
        self._shares.give_back(owner, failures)


class Queues:
    """All queues; changed only by applying journal entries."""

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self._by_name = {queue.name: queue for queue in queues}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Queue]:
        """By name."""
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def get(self, name: str) -> Queue | None:
        return self._by_name.get(name)

    def apply(self, event: QueueEvent, created_us: int) -> None:
        match event:
            case QueueSet(queue=name):
                queue = self._by_name.get(name)
                if queue is None:
                    queue = self._by_name[name] = Queue(name, event.settings, event.owner, 0)
                queue.settings, queue.set_us = event.settings, created_us
                for topic_id in event.left:
                    queue.progress.pop(topic_id, None)
                for start in event.starts:
                    queue.on(start.topic_id).settle(0, start.offset)
            case QueueProgressed(queue=name, topic_id=topic_id):
                self._by_name[name].on(topic_id).apply(event)
            case QueueDeleted(queue=name):
                del self._by_name[name]

    def forget_topic(self, topic_id: int) -> None:
        """The topic was deleted."""
        for queue in self._by_name.values():
            queue.progress.pop(topic_id, None)

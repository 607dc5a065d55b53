"""Adds the events of work queues to the open window.

What a window knows of a queue's progress on one topic is one event, which grows until the window is
sealed, so that many acknowledgements cost no more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.append.admission import Admission, Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.queues.progress import Queues
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.names import Patterns, check_pattern, check_topic_name
from seb_appliance.errors import BadRequestError, QueueNotFoundError, SebError
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import QueueDeleted, QueueProgressed, QueueSet
from seb_appliance.formats.queues.queues import (
    FailedDelivery,
    OffsetRange,
    QueueSettings,
    QueueStart,
)

_ITEM_BYTES: Final = 24  # of a range or a failure, in a window


@dataclass(frozen=True, slots=True)
class AdmittedQueue:
    settings: QueueSettings
    owner: str


Check = Callable[[AdmittedQueue | None], None]
"""Whether this one may be replaced. It is asked when the change is decided: what was there when the
request came may be another one by now."""


def any_may(_known: AdmittedQueue | None) -> None:
    """Who may change every queue, or was asked just now."""


def no_such_queue(name: str) -> QueueNotFoundError:
    return QueueNotFoundError(f"There is no queue {name!r}.")


class QueueAdmission:
    def __init__(self, topics: Admission, queues: Queues, shares: AllShares) -> None:
        self._topics = topics
        self._shares = shares.declare(
            "queues", limits.QUEUES_MAX, "queues", "Delete queues that nobody needs."
        )
        self.topics_read = shares.declare(
            "queue_topics",
            limits.QUEUE_TOPICS_READ_MAX,
            "topics that its queues read",
            "Delete queues, or let them read fewer topics.",
        )
        self._ahead = {q.name: AdmittedQueue(q.settings, q.owner) for q in queues}
        self._changed_in: dict[str, Window] = {}
        # The events of the window that was open last, by queue and topic id.
        self._window: Window | None = None
        self._growing: dict[tuple[str, int], QueueProgressed] = {}
        for queue in queues:
            self._shares.take_anyway(queue.owner, 1)

    def find(self, name: str) -> AdmittedQueue | None:
        return self._ahead.get(name)

    def changed_in(self, name: str) -> Window | None:
        """The window of the queue's newest event, if that is not stored yet."""
        window = self._changed_in.get(name)
        if window is not None and window.is_done:
            del self._changed_in[name]
            return None
        return window

    def admit_set(
        self,
        window: Window,
        name: str,
        settings: QueueSettings,
        owner: str,
        joined: Iterable[str],
        left: Collection[int],
        check: Check,
    ) -> bool:
        """Whether the queue is new. `joined`: topics that it did not read before. Raises
        Refusal."""
        known = self._ahead.get(name)
        try:
            check(known)
            if known is None:
                self._shares.take(owner, 1)
        except SebError as error:
            raise Refusal(error, None) from None
        if known is not None:
            owner = known.owner
        starts = []
        for topic in filter(None, map(self._topics.find, joined)):
            latest = settings.start == "latest"
            offset = topic.next_offset if latest else topic.log_start_offset
            if offset:
                starts.append(QueueStart(topic.topic_id, offset))
        event = QueueSet(
            queue=name, settings=settings, owner=owner, starts=tuple(starts), left=tuple(left)
        )
        self._ahead[name] = AdmittedQueue(settings, owner)
        self._changed_in[name] = window
        window.add_event(event, encoded_bytes(event))
        self._growing.clear()  # what follows belongs behind this event
        return known is None

    def admit_restart(self, window: Window, name: str, starts: Mapping[int, int]) -> None:
        """Forget what the queue did on these topics, and read each from its offset on. Raises
        Refusal."""
        known = self._ahead.get(name)
        if known is None:
            raise Refusal(no_such_queue(name), self.changed_in(name))
        left = tuple(topic_id for topic_id in starts if self._topics.lives(topic_id))
        begins = tuple(QueueStart(one, starts[one]) for one in left if starts[one])
        event = QueueSet(
            queue=name, settings=known.settings, owner=known.owner, starts=begins, left=left
        )
        self._changed_in[name] = window
        window.add_event(event, encoded_bytes(event))
        self._growing.clear()

    def admit_deleted(self, window: Window, name: str) -> None:
        known = self._ahead.pop(name, None)
        if known is None:
            raise Refusal(no_such_queue(name), self.changed_in(name))
        self._shares.give_back(known.owner, 1)
        self._changed_in[name] = window
        window.add_event(QueueDeleted(queue=name))
        self._growing.clear()

    def lives(self, topic_id: int) -> bool:
        """Whether progress on this topic can be stored."""
        return self._topics.lives(topic_id)

    def add_range(
        self, window: Window, name: str, topic_id: int, outcome: str, begin: int, end: int
    ) -> None:
        """Offsets from `begin` up to `end` (exclusive) are settled. The topic lives, and `outcome`
        is the name of a list of QueueProgressed."""
        ranges: list[OffsetRange] = getattr(self._event(window, name, topic_id), outcome)
        if ranges and ranges[-1].end == begin:
            ranges[-1] = OffsetRange(ranges[-1].begin, end)
        else:
            ranges.append(OffsetRange(begin, end))
            window.size_bytes += _ITEM_BYTES

    def add_failure(
        self, window: Window, name: str, topic_id: int, failure: FailedDelivery
    ) -> None:
        self._event(window, name, topic_id).failed.append(failure)
        window.size_bytes += _ITEM_BYTES

    def _event(self, window: Window, name: str, topic_id: int) -> QueueProgressed:
        if self._window is not window:
            self._window = window
            self._growing.clear()
        event = self._growing.get((name, topic_id))
        if event is None:
            event = self._growing[name, topic_id] = QueueProgressed(queue=name, topic_id=topic_id)
            window.add_event(event)
            self._changed_in[name] = window
        return event


def reads_alike(before: QueueSettings, after: QueueSettings) -> bool:
    return before.topics == after.topics and before.ordering == after.ordering


def checked(settings: QueueSettings) -> Patterns:
    """Raises BadNameError, BadParameterError, BadRequestError."""
    for pattern in settings.topics:
        check_pattern(pattern)
    patterns = Patterns(settings.topics)
    if settings.dead_letter is not None:
        check_topic_name(settings.dead_letter, "dead letter topic")
        if patterns.cover(settings.dead_letter):
            raise BadRequestError("A queue cannot read the topic of its own dead letters.")
    if settings.retry.min_ms > settings.retry.max_ms:
        raise BadRequestError("retry: min_ms must not be more than max_ms.")
    return patterns

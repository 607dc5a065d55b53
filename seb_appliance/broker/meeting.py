"""Topics and those who read them, with patterns of their own.

A thousand readers with a hundred patterns each take a tenth of a second to compare them with one
new topic, and one request can make a hundred topics. So they do it in turns, and the owners take
turns. They are told in slices of what changes: one window can change thousands of topics.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Generic, Protocol, TypeVar

from seb_appliance.broker.callbacks import Turns, tell
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.tasks import run_in_slices


class Owned(Protocol):
    @property
    def owner(self) -> str: ...


T = TypeVar("T", bound=Owned)


class Meetings(Generic[T]):
    def __init__(
        self, everybody: Callable[[], Iterable[T]], meet: Callable[[T, Topic], None]
    ) -> None:
        """`meet` may be called for one who has left, and again for a topic that is known."""
        self._everybody = everybody
        self._meet = meet
        self._turns = Turns()
        self._unmet: dict[T, deque[Topic]] = {}

    def add(self, topic: Topic) -> None:
        """It is new: everybody meets it soon."""
        self._turns.add(OPERATOR, partial(self._spread, topic))

    def _spread(self, topic: Topic) -> None:
        for one in self._everybody():
            unmet = self._unmet.get(one)
            if unmet is None:
                self._unmet[one] = deque([topic])
                self._turns.add(one.owner, partial(self._meet_next, one))
            else:
                unmet.append(topic)

    def _meet_next(self, one: T) -> None:
        unmet = self._unmet[one]
        topic = unmet.popleft()
        if unmet:
            self._turns.add(one.owner, partial(self._meet_next, one))
        else:
            del self._unmet[one]
        self._meet(one, topic)


class Readers(Generic[T]):
    """Who reads which topic."""

    def __init__(self, told: Callable[[T, Topic], None]) -> None:
        """`told`: a topic has changed, or is deleted. It may be called for one who has left."""
        self._told = told
        self.by_topic: dict[int, set[T]] = {}
        self._changed: OrderedDict[int, Topic] = OrderedDict()  # is to be told
        self._is_telling = False

    def add(self, one: T, topic_id: int) -> None:
        self.by_topic.setdefault(topic_id, set()).add(one)

    def remove(self, one: T, topic_ids: Iterable[int]) -> None:
        for topic_id in topic_ids:
            readers = self.by_topic.get(topic_id)
            if readers is not None:
                readers.discard(one)
                if not readers:
                    del self.by_topic[topic_id]

    def changed(self, topic: Topic) -> None:
        """Those who read it are told soon."""
        if topic.topic_id in self.by_topic:
            self._changed[topic.topic_id] = topic
            if not self._is_telling:
                self._is_telling = True
                run_in_slices(self._telling())

    def _telling(self) -> Iterator[None]:
        while self._changed:
            topic_id, topic = self._changed.popitem(last=False)
            for one in tuple(self.by_topic.get(topic_id, ())):
                tell(self._told, one, topic)
                yield
            if topic.deleted:
                self.by_topic.pop(topic_id, None)
        self._is_telling = False

"""New topics, and those who may want them: each compares their names with patterns of its own.

A thousand of them with a hundred patterns each take a tenth of a second for one topic, and one
request can make a hundred topics. So they do it in turns, and the owners take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, Protocol, TypeVar

from seb_appliance.broker.callbacks import Turns
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics.topic import Topic


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

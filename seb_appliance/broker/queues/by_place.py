"""What a queue holds, by topic and offset, so that all of one topic is forgotten at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_NOTHING: Final[Mapping[int, object]] = {}


class Place(NamedTuple):
    topic_id: int
    offset: int


class ByPlace(Generic[T]):
    """One thing for each place. Those of a topic keep the order in which they came."""

    __slots__ = ("_by_topic", "_count")

    def __init__(self) -> None:
        self._by_topic: dict[int, dict[int, T]] = {}  # none of them is empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __contains__(self, place: Place) -> bool:
        return place[1] in self._by_topic.get(place[0], _NOTHING)

    def __iter__(self) -> Iterator[Place]:
        return (place for place, _ in self.items())

    def items(self) -> Iterator[tuple[Place, T]]:
        for topic_id, things in self._by_topic.items():
            for offset, thing in things.items():
                yield Place(topic_id, offset), thing

    def get(self, place: Place) -> T | None:
        things = self._by_topic.get(place[0])
        return None if things is None else things.get(place[1])

    def __getitem__(self, place: Place) -> T:
        return self._by_topic[place[0]][place[1]]

    def add(self, place: Place, thing: T) -> None:
        """There is none for `place` yet."""
        topic_id, offset = place
        things = self._by_topic.get(topic_id)
        if things is None:
            things = self._by_topic[topic_id] = {}
        things[offset] = thing
        self._count += 1

    def pop(self, place: Place) -> T:
        topic_id, offset = place
        things = self._by_topic[topic_id]
        thing = things.pop(offset)
        if not things:
            del self._by_topic[topic_id]
        self._count -= 1
        return thing

    def turn(self) -> tuple[int, Mapping[int, T]]:
        """The topic whose turn it is, and what there is of it, by offset. The topics take turns.
        There is something."""
        topic_id = next(iter(self._by_topic))
        things = self._by_topic[topic_id] = self._by_topic.pop(topic_id)
        return topic_id, things

    def forget(self, topic_id: int) -> dict[int, T]:
        """Take out what there is of this topic, at the same cost whatever it is."""
        things = self._by_topic.pop(topic_id, None) or {}
        self._count -= len(things)
        return things

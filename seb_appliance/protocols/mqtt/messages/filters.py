"""Which subscriptions match a topic: a tree of the levels of their filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_AT_ONCE: Final = 250  # nodes


class _Node(Generic[T]):
    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.below: dict[str, _Node[T]] = {}
        self.here: dict[object, T] = {}


class Filters(Generic[T]):
    """Values by filter and owner."""

    def __init__(self) -> None:
        self._root = _Node[T]()
        self.count = 0

    def put(self, topic_filter: str, owner: object, value: T) -> None:
        node = self._root
        for level in topic_filter.split("/"):
            node = node.below.setdefault(level, _Node())
        self.count += owner not in node.here
        node.here[owner] = value

    def remove(self, topic_filter: str, owner: object) -> None:
        path, node = list[tuple[_Node[T], str]](), self._root
        for level in topic_filter.split("/"):
            path.append((node, level))
            node = node.below[level]
        del node.here[owner]
        self.count -= 1
        while path and not (node.below or node.here):
            node, level = path.pop()
            del node.below[level]

    def match(self, topic: str) -> list[tuple[object, T]]:
        """Owners and values. Wildcards do not match a first level that begins with $."""
        return [one for one in self.steps(topic) if one is not None]

    def steps(self, topic: str) -> Iterator[tuple[object, T] | None]:
        """As `match`. None comes after a millisecond of work: a few thousand filters with many
        wildcards take hundreds of them. Filters may be put and removed then."""
        levels = topic.split("/")
        nodes = [self._root]
        for i, level in enumerate(levels):
            names = (level,) if i == 0 and level.startswith("$") else (level, "+")
            below = list[_Node[T]]()
            for done, node in enumerate(nodes, 1):
                if len(names) == 2 and (rest := node.below.get("#")) is not None:
                    yield from rest.here.items()
                below += [node.below[name] for name in names if name in node.below]
                if done % _AT_ONCE == 0:
                    yield None
            nodes = below
            if not nodes:
                return
        for done, node in enumerate(nodes, 1):
            yield from node.here.items()
            if (rest := node.below.get("#")) is not None:
                yield from rest.here.items()
            if done % _AT_ONCE == 0:
                yield None

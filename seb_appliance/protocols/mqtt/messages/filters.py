"""Which subscriptions match a topic: a tree of the levels of their filters."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


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
        """Wildcards do not match a first level that begins with $."""
        found = list[tuple[object, T]]()
        levels = topic.split("/")
        nodes = [self._root]
        for i, level in enumerate(levels):
            names = (level,) if i == 0 and level.startswith("$") else (level, "+")
            if len(names) == 2:
                for node in nodes:
                    if (rest := node.below.get("#")) is not None:
                        found += rest.here.items()
            nodes = [node.below[name] for node in nodes for name in names if name in node.below]
            if not nodes:
                return found
        for node in nodes:
            found += node.here.items()
            if (rest := node.below.get("#")) is not None:
                found += rest.here.items()
        return found

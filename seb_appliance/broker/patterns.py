"""Which of many patterns match a name: one trie over the words between dots.

`*` matches one word, `**` zero or more. A match walks all patterns at once, word by word, so its
cost depends on how many patterns share the name's words, not on how many there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

CACHED_NAMES_MAX: Final = 20_000  # twice the topics there may be: names that miss are kept, too


class _Node(Generic[T]):
    """`rest`: the node reached by `**`, which stays reached whatever words follow."""

    __slots__ = ("one", "rest", "stays", "values", "words")

    def __init__(self, *, stays: bool = False) -> None:
        self.words: dict[str, _Node[T]] = {}
        self.one: _Node[T] | None = None
        self.rest: _Node[T] | None = None
        self.stays = stays
        self.values: set[T] = set()

    def is_bare(self) -> bool:
        return not (self.words or self.one or self.rest or self.values)


class PatternTrie(Generic[T]):
    """Patterns (checked by names.check_pattern), each with the values filed under it.
    `names_kept`: for how many names the answer is remembered."""

    def __init__(self, *, names_kept: int = CACHED_NAMES_MAX) -> None:
        self._names_kept = names_kept
        self._root: _Node[T] = _Node()
        self._known: OrderedDict[str, frozenset[T]] = OrderedDict()

    def add(self, pattern: str, value: T) -> None:
        node = self._root
        for word in pattern.split("."):
            node = self._child(node, word)
        node.values.add(value)
        self._known.clear()

    def remove(self, pattern: str, value: T) -> None:
        """Take `value` away from under `pattern`, where it must be."""
        path = [(self._root, "")]
        for word in pattern.split("."):
            path.append((self._child(path[-1][0], word), word))
        path[-1][0].values.remove(value)
        for (parent, _), (node, word) in zip(path[-2::-1], path[:0:-1], strict=True):
            if not node.is_bare():
                break
            if word == "*":
                parent.one = None
            elif word == "**":
                parent.rest = None
            else:
                del parent.words[word]
        self._known.clear()

    def match(self, name: str) -> frozenset[T]:
        """The values under all patterns that match `name`. Names seen lately cost a look-up."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._find(name.split("."))
            if len(self._known) > self._names_kept:
                self._known.popitem(last=False)
        return known

    def _child(self, node: _Node[T], word: str) -> _Node[T]:
        """The child for a pattern's word, made if missing."""
        if word == "*":
            node.one = node.one or _Node()
            return node.one
        if word == "**":
            node.rest = node.rest or _Node(stays=True)
            return node.rest
        child = node.words.get(word)
        if child is None:
            child = node.words[word] = _Node()
        return child

    def _find(self, words: Iterable[str]) -> frozenset[T]:
        reached = _with_rest([self._root])
        for word in words:
            following: list[_Node[T]] = []
            for node in reached:
                child = node.words.get(word)
                if child is not None:
                    following.append(child)
                if node.one is not None:
                    following.append(node.one)
                if node.stays:
                    following.append(node)
            reached = _with_rest(following)
            if not reached:
                return frozenset()
        return frozenset().union(*(node.values for node in reached))


class Patterns:
    """Some patterns, and whether a name matches one of them."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._trie: PatternTrie[None] = PatternTrie(names_kept=0)
        for pattern in self.patterns:
            self._trie.add(pattern, None)

    def cover(self, name: str) -> bool:
        return bool(self._trie.match(name))


def _with_rest(nodes: list[_Node[T]]) -> list[_Node[T]]:
    """`nodes`, each once, and what `**` reaches from them without using a word up."""
    seen: dict[_Node[T], None] = {}
    for node in nodes:
        at: _Node[T] | None = node
        while at is not None and at not in seen:
            seen[at] = None
            at = at.rest
    return list(seen)

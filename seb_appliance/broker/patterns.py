"""Which of many patterns match a name. `*` matches one word between dots, `**` zero or more.

All patterns are matched at once, as an automaton without backtracking: each place between the words
of a pattern is one bit of an integer. A word of the name costs a few operations on such integers,
whatever the patterns are, so that nobody can write patterns that take long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


class Patterns:
    """Patterns that `names.check_pattern` has checked, numbered from 0 as they are given."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._starts = 0
        self._any_word = 0  # places in front of *
        self._words: defaultdict[str, int] = defaultdict(int)  # places in front of this word
        self._stays = 0  # places in front of **, which any word leaves where they are
        self._ends: list[int] = []  # the place behind the last word of each pattern
        place = 0
        for pattern in self.patterns:
            self._starts |= 1 << place
            before = ""
            for word in pattern.split("."):
                if word == before == "**":
                    continue  # the same as one of them
                before = word
                if word == "**":
                    self._stays |= 1 << place
                elif word == "*":
                    self._any_word |= 1 << place
                else:
                    self._words[word] |= 1 << place
                place += 1
            self._ends.append(place)
            place += 1
        self._end_bits = sum(1 << end for end in self._ends)

    def match(self, name: str) -> frozenset[int]:
        """The numbers of all patterns that match `name`."""
        reached = self._reached(name) & self._end_bits
        if not reached:
            return frozenset()
        return frozenset(i for i, end in enumerate(self._ends) if reached >> end & 1)

    def cover(self, name: str) -> bool:
        """Whether one of the patterns matches `name`."""
        return bool(self._reached(name) & self._end_bits)

    def _reached(self, name: str) -> int:
        """The places behind all words of `name`."""
        at = self._starts
        at |= (at & self._stays) << 1  # ** may stand for no word; no two of them are neighbours
        for word in name.split("."):
            steps = at & (self._any_word | self._words.get(word, 0))
            at = steps << 1 | at & self._stays
            at |= (at & self._stays) << 1
            if not at:
                break
        return at

"""Names of topics, and patterns over them: words joined by dots."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import BadNameError, BadParameterError

_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")
_MANY_WORDS: Final = 65  # more than a pattern of a grant can spell out
_RULE: Final = (
    f"Letters, digits, _ and -, words joined by dots, at most {limits.NAME_LENGTH_MAX} characters."
)


def check_topic_name(name: str, what: str = "topic") -> str:
    """Returns `name`. Raises BadNameError."""
    if not name:
        raise BadNameError(f"A {what} name is empty. {_RULE}")
    if len(name) > limits.NAME_LENGTH_MAX:
        raise BadNameError(f"The name has {len(name)} characters. {_RULE}")
    for word in name.split("."):
        if not word:
            raise BadNameError(f"{name!r} has an empty word between its dots. {_RULE}")
        if not _WORD.fullmatch(word):
            raise BadNameError(f"{name!r} has a character that is not allowed. {_RULE}")
    return name


def check_group_name(name: str) -> str:
    """As `check_topic_name`: the rule is the same."""
    return check_topic_name(name, "group")


def check_pattern(pattern: str) -> str:
    """Returns `pattern`: `*` is one word, `**` zero or more. Raises BadParameterError."""
    words = pattern.split(".")
    if len(pattern) > limits.NAME_LENGTH_MAX or not all(
        word in {"*", "**"} or _WORD.fullmatch(word) for word in words
    ):
        raise BadParameterError(
            f"{pattern[:200]!r} is not a pattern: words, * (one word) or ** (zero or more "
            f"words) joined by dots, at most {limits.NAME_LENGTH_MAX} characters"
        )
    return pattern


def samples_of(pattern: str) -> list[str]:
    """Names that stand for all that the pattern matches: with as few words for `**` as there may
    be, and with many. `*` is a word of no name, so only another wildcard matches it."""
    names = []
    for count in (0, 1, _MANY_WORDS):
        words: list[str] = []
        for word in pattern.split("."):
            words += ["*"] * count if word == "**" else [word]
        names.append(".".join(words))
    return names


class Patterns:
    """Matches a name against all checked patterns at once, which are numbered from 0, by an
    automaton without backtracking: each position between two words is one bit of an integer."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._starts = 0
        self._any_word = 0  # positions before *
        self._words: defaultdict[str, int] = defaultdict(int)  # positions before this word
        self._stays = 0  # positions before **, where any word stays
        self._ends: list[int] = []  # the position behind the last word of each pattern
        place = 0
        for pattern in self.patterns:
            self._starts |= 1 << place
            before = ""
            for word in pattern.split("."):
                if word == before == "**":
                    continue  # the same as one **
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
        """The positions behind all words of `name`."""
        at = self._starts
        at |= (at & self._stays) << 1  # ** may match no word; no two ** are adjacent
        for word in name.split("."):
            steps = at & (self._any_word | self._words.get(word, 0))
            at = steps << 1 | at & self._stays
            at |= (at & self._stays) << 1
            if not at:
                break
        return at

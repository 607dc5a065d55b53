"""Names of topics, and patterns over them: words joined by dots."""

from __future__ import annotations

import re
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import BadNameError, BadParameterError

_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")
_RULE: Final = (
    f"Letters, digits, _ and -, words joined by dots, at most {limits.NAME_LENGTH_MAX} characters."
)


def check_topic_name(name: str) -> str:
    """`name` itself, or BadNameError with a sentence that says what is wrong with it."""
    return _check_name(name, "topic")


def check_group_name(name: str) -> str:
    """Groups are named by the rule for topics."""
    return _check_name(name, "group")


def _check_name(name: str, what: str) -> str:
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


def check_pattern(pattern: str) -> str:
    """`pattern` itself, or BadParameterError. `*` is one word, `**` zero or more."""
    words = pattern.split(".")
    if len(pattern) > limits.NAME_LENGTH_MAX or not all(
        word in {"*", "**"} or _WORD.fullmatch(word) for word in words
    ):
        raise BadParameterError(
            f"{pattern[:200]!r} is not a pattern: words, * (one word) or ** (zero or more "
            f"words) joined by dots, at most {limits.NAME_LENGTH_MAX} characters"
        )
    return pattern

"""Matching one pattern against one name, word by word: what `Patterns` is compared with."""

from __future__ import annotations


def pattern_matches(pattern: str, name: str) -> bool:
    """Whether a checked pattern matches a checked name. Linear in words of pattern times name."""
    words = name.split(".")
    reached = {0}  # how many words of the name the pattern's words so far can have used up
    for part in pattern.split("."):
        if part == "**":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {
                used + 1 for used in reached if used < len(words) and part in {"*", words[used]}
            }
    return len(words) in reached

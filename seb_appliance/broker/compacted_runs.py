"""Runs: ranges of a topic in which compaction has left one record of each record key.

They only say what is worth compacting next; which records may go is found out by their record keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Run: TypeAlias = tuple[int, int]
"""Base and last offset, inclusive."""


def with_run(runs: Iterable[Run], base_offset: int, last_offset: int) -> list[Run]:
    """`runs`, ascending and apart, with one more in the place of what lies there."""
    below, above = [], []
    for base, last in runs:
        if base < base_offset:
            below.append((base, min(last, base_offset - 1)))
        if last > last_offset:
            above.append((max(base, last_offset + 1), last))
    return [*below, (base_offset, last_offset), *above]


def without_below(runs: Iterable[Run], offset: int) -> list[Run]:
    """`runs` without those that lie wholly below `offset`."""
    return [run for run in runs if run[1] >= offset]

"""Forks: whose rows answer for an offset, and which rows of a topic are needed.

A fork shares its parent's records below its fork offset. Nothing is copied: a reader goes up to the
topic whose rows answer for an offset. So a topic's rows stay in force for as long as it or a fork
of it can read them. Memory and SQLite both decide by the functions of this file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from seb_appliance import limits

if TYPE_CHECKING:
    from seb_appliance.broker.stored import StoredObjects
    from seb_appliance.broker.topic import Topic

NOTHING: Final = limits.OFFSET_MAX
"""The held offset of a topic of whose rows nobody needs any."""

Need: TypeAlias = tuple[int, int]
"""Of a fork: the first offset that it or a fork of it needs, and its fork offset. It needs of its
parent what lies between, if anything does."""


def owner_of(topic: Topic, offset: int) -> tuple[Topic, int]:
    """The topic whose rows answer for `offset` of `topic`, and up to where (exclusive) they do."""
    end = limits.OFFSET_MAX + 1
    while offset < topic.fork_offset:
        assert topic.parent is not None, topic
        end = min(end, topic.fork_offset)
        topic = topic.parent
    return topic, end


def held_offset(log_start_offset: int | None, needs: Iterable[Need]) -> int:
    """The first offset of a topic that anyone needs; NOTHING when nobody does. `log_start_offset`
    None: the topic is deleted."""
    begins = [begin for begin, end in needs if begin < end]
    if log_start_offset is not None:
        begins.append(log_start_offset)
    return min(begins, default=NOTHING)


def pinned_below(needs: Iterable[Need]) -> int:
    """What lies below this offset is some fork's, too: compaction must leave it as it is."""
    return max((end for begin, end in needs if begin < end), default=0)


def holes(log_start_offset: int | None, needs: Iterable[Need]) -> list[tuple[int, int]]:
    """Offsets (the end is exclusive) above the held offset that nobody needs, ascending."""
    wanted = sorted((begin, end) for begin, end in needs if begin < end)
    if log_start_offset is not None:
        wanted.append((log_start_offset, limits.OFFSET_MAX + 1))
        wanted.sort()
    found: list[tuple[int, int]] = []
    reached = wanted[0][1] if wanted else 0
    for begin, end in wanted[1:]:
        if begin > reached:
            found.append((reached, begin))
        reached = max(reached, end)
    if wanted and reached <= limits.OFFSET_MAX:
        found.append((reached, limits.OFFSET_MAX + 1))
    return found


def settle(topics: Iterable[Topic], stored: StoredObjects) -> None:
    """Some rows of these topics, and of those that they were forked from, may not be needed any
    more: those in segments go, but the last. Rows of entries go once they are merged."""
    due = {topic.topic_id: topic for topic in topics}
    for topic in list(due.values()):
        while topic.parent is not None:
            topic = topic.parent
            due[topic.topic_id] = topic
    # A fork is younger than its parent, whose needs follow from its own.
    for _, topic in sorted(due.items(), reverse=True):
        if topic.purged:
            continue
        needs = topic.needs
        topic.held_offset = held_offset(topic.read_from, needs)
        stored.release(topic.stored.drop_below(topic.held_offset))
        for hole in holes(topic.read_from, needs) if needs else ():
            stored.release(topic.stored.drop_within(*hole))
        topic.forget_entries()

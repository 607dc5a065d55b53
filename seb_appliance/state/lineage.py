"""Forks in the tables: which topics an event concerns, which go, and what is held of the others.

What is held follows from the rows of `topics` alone, so it may be brought up to date once for many
events. Deleting is done event by event: a name is free as soon as its topic goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from sqlalchemy import Connection, bindparam, delete, exists, select, update

from seb_appliance.broker.topics.topic import Need, held_offset
from seb_appliance.formats.operations import Operation, TopicDeleted, TopicForked, TopicTrimmed
from seb_appliance.state.found import one_of, rows_with
from seb_appliance.state.schema import topics

Parents: TypeAlias = Mapping[int, int | None]
"""The parents of topics, by topic id."""

_fork, _above, _other = topics.alias("fork"), topics.alias("above"), topics.alias("other")
_gone = (
    select(topics.c.topic_id, topics.c.parent_id)
    .where(
        topics.c.topic_id == bindparam("of_topic_id"),
        ~exists().where(_fork.c.parent_id == topics.c.topic_id),
    )
    .cte("gone", recursive=True)
)
_gone = _gone.union_all(
    select(_above.c.topic_id, _above.c.parent_id).where(
        _above.c.topic_id == _gone.c.parent_id,
        _above.c.deleted == 1,
        ~exists().where(
            _other.c.parent_id == _above.c.topic_id, _other.c.topic_id != _gone.c.topic_id
        ),
    )
)
# A topic that was marked goes if it has no forks, and those above it of which it was the last one.
MARK: Final = update(topics).where(topics.c.topic_id == bindparam("of_topic_id")).values(deleted=1)
DELETE_MARKED: Final = delete(topics).where(topics.c.topic_id.in_(select(_gone.c.topic_id)))

_HOLD: Final = (
    update(topics)
    .where(topics.c.topic_id == bindparam("of_topic_id"))
    .values(held_offset=bindparam("held"))
)


def parents_of(connection: Connection, operations: Iterable[Operation]) -> Parents:
    """Of the topics that `operations` fork, trim or delete, and of all above them; asked before
    they are applied."""
    named: set[int] = set()
    made: dict[int, int | None] = {}
    for operation in operations:
        if isinstance(operation, TopicForked):
            made[operation.topic_id] = operation.parent_id
            named.add(operation.parent_id)
        elif isinstance(operation, TopicDeleted | TopicTrimmed):
            named.add(operation.topic_id)
    found: dict[int, int | None] = {}
    while named:
        of = topics.c
        asked = select(of.topic_id, of.parent_id).where(one_of(of.topic_id, sorted(named)))
        fresh = {topic_id: parent for topic_id, parent in connection.execute(asked)}  # noqa: C416
        found |= fresh
        named = {parent for parent in fresh.values() if parent is not None} - found.keys()
    return found | made


def concerned(operations: Iterable[Operation], parents: Parents) -> list[int]:
    """The topics that these operations trim or delete, and all above them, forks first."""
    found: set[int] = set()
    for operation in operations:
        if isinstance(operation, TopicDeleted | TopicTrimmed):
            topic_id: int | None = operation.topic_id
            while topic_id is not None and topic_id not in found:
                found.add(topic_id)
                topic_id = parents.get(topic_id)
    return sorted(found, reverse=True)  # a fork is younger than its parent


def hold(connection: Connection, topic_ids: Sequence[int]) -> None:
    """Bring `held_offset` of these topics up to date; forks come first."""
    forks = forks_of(connection, topic_ids)
    found = {row.topic_id: row for row in rows_with(connection, topics.c.topic_id, topic_ids)}
    for topic_id in topic_ids:
        row = found.get(topic_id)
        if row is None:
            continue
        needs = list(forks[topic_id].values())
        held = held_offset(None if row.deleted else row.log_start_offset, needs)
        if held != row.held_offset:
            connection.execute(_HOLD, {"of_topic_id": topic_id, "held": held})
            if row.parent_id in forks:
                forks[row.parent_id][topic_id] = held, row.fork_offset


def forks_of(connection: Connection, topic_ids: Sequence[int]) -> dict[int, dict[int, Need]]:
    """By topic id, what the forks of it need, by theirs."""
    found: dict[int, dict[int, Need]] = defaultdict(dict)
    for row in rows_with(connection, topics.c.parent_id, topic_ids):
        found[row.parent_id][row.topic_id] = row.held_offset, row.fork_offset
    return found

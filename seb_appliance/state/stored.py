"""Segments, packed objects and garbage as rows: projected in order.

What is left in force by many events is the same whether they come one by one or together: rows of
topics that are gone, or below a log start, are left out by the tables as they are at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from seb_appliance.broker.topics.topic import Need, Run, holes, with_run, without_below
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.operations import (
    ObjectsAdopted,
    ObjectsCondemned,
    ObjectsRemoved,
    Operation,
    ReplacedRange,
    SegmentsReplaced,
    StoredObject,
    TopicCompacted,
    object_id_of,
)
from seb_appliance.state import rows
from seb_appliance.state.found import checksum_of, one_of, rows_with
from seb_appliance.state.lineage import Parents, concerned, forks_of
from seb_appliance.state.schema import (
    compacted_runs,
    garbage,
    index_pages,
    journal_entries,
    stored_objects,
    stored_sections,
    tidy_state,
    topics,
)

_ROWS_AT_ONCE: Final = 200
_OURS: Final = (SegmentsReplaced, TopicCompacted, ObjectsCondemned, ObjectsRemoved)


def project(connection: Connection, entries: Sequence[Entry], parents: Parents) -> int:
    """Apply what `entries` say, once topics and entries have their rows; how much the file's
    checksum grows by it. `parents`: of the topics that they trim or delete."""
    added = 0
    for entry in entries:
        operations = entry.contents.operations
        # In memory's order: what is adopted may go again in the same entry, what is switched not.
        for operation in operations:
            if isinstance(operation, ObjectsAdopted):
                added += _put_in_force(connection, operation.objects, entry.header.seq)
        added += _settle(connection, concerned(operations, parents))
        for operation in operations:
            if isinstance(operation, _OURS):
                added += _apply(connection, operation, entry)
    return added


def _apply(connection: Connection, operation: Operation, entry: Entry) -> int:
    match operation:
        case SegmentsReplaced():
            return _switch(connection, operation, entry.header.seq)
        case TopicCompacted(topic_id=topic_id, base_offset=base, last_offset=last):
            return _set_runs(connection, topic_id, (base, last))
        case ObjectsCondemned(keys=keys):
            gone = _delete(connection, stored_objects, stored_objects.c.key.in_(keys))
            since_us = entry.header.created_us
            fresh = [{"key": key, "since_us": since_us} for key in keys]
            return _insert(connection, garbage, fresh) - gone
        case ObjectsRemoved(keys=keys):
            return -_delete(connection, garbage, garbage.c.key.in_(keys))
    raise AssertionError(operation)


def _settle(connection: Connection, topic_ids: Sequence[int]) -> int:
    """Delete the rows of these topics that nobody needs any more (`broker.lineage.settle`), and
    bring their runs up to date; how much the checksum grows by it."""
    if not topic_ids:
        return 0
    found = {row.topic_id: row for row in rows_with(connection, topics.c.topic_id, topic_ids)}
    forks = forks_of(connection, topic_ids)
    of = stored_sections.c
    added = 0
    for topic_id in topic_ids:
        row = found.get(topic_id)
        which = of.topic_id == topic_id
        if row is None:
            added -= _delete(connection, index_pages, index_pages.c.topic_id == topic_id)
        else:
            which = and_(which, of.last_offset < row.held_offset)
        added -= _delete(connection, stored_sections, which)
        added += _set_runs(connection, topic_id)
        if row is not None and (needs := list(forks[topic_id].values())):
            added -= _delete_in_holes(connection, row, needs)
    return added


def _delete_in_holes(connection: Connection, topic: rows.ResultRow, needs: Sequence[Need]) -> int:
    """Delete what lies where nobody needs it, but the topic's last row; its checksum."""
    of, later = stored_sections.c, stored_sections.alias("later")
    has_later = exists().where(
        later.c.topic_id == of.topic_id, later.c.base_offset > of.base_offset
    )
    gone = 0
    for begin, end in holes(None if topic.deleted else topic.log_start_offset, needs):
        within = and_(of.base_offset >= begin, of.last_offset < end)
        which = and_(of.topic_id == topic.topic_id, within, has_later)
        gone += _delete(connection, stored_sections, which)
    return gone


def _set_runs(connection: Connection, topic_id: int, added: Run | None = None) -> int:
    """Bring the topic's runs up to date with one more of them, and with its log start; how much
    the checksum grows by it."""
    found = rows_with(connection, topics.c.topic_id, [topic_id])
    of_topic = compacted_runs.c.topic_id == topic_id
    query = select(compacted_runs).where(of_topic).order_by(compacted_runs.c.base_offset)
    before = [(row.base_offset, row.last_offset) for row in connection.execute(query)]
    after = before if added is None else with_run(before, *added)
    starts = [topic.log_start_offset for topic in found if not topic.deleted]
    after = [run for start in starts for run in without_below(after, start)]
    if after == before:
        return 0
    fresh = [{"topic_id": topic_id, "base_offset": run[0], "last_offset": run[1]} for run in after]
    return -_delete(connection, compacted_runs, of_topic) + _insert(
        connection, compacted_runs, fresh
    )


def forget_tidied(connection: Connection, paged_seq: int, *, pages_too: bool) -> int:
    """Delete the rows of entries that are tidied and, up to `paged_seq`, in pages; and the pages
    that nobody will look up any more (but each topic's last, which later ones add up from). How
    much the checksum grows by it."""
    tidied_seq = select(tidy_state.c.tidied_seq).scalar_subquery()
    seq = journal_entries.c.seq
    added = -_delete(connection, journal_entries, and_(seq <= tidied_seq, seq <= paged_seq))
    if pages_too:
        added -= _delete(connection, index_pages, _is_dead_page())
    return added


def _is_dead_page() -> ColumnElement[bool]:
    of, later = index_pages.c, index_pages.alias("later")
    stored_end = (
        select(func.coalesce(func.max(stored_sections.c.last_offset), -1) + 1)
        .where(stored_sections.c.topic_id == of.topic_id)
        .scalar_subquery()
    )
    held = select(topics.c.held_offset).where(topics.c.topic_id == of.topic_id).scalar_subquery()
    has_later = exists().where(
        later.c.topic_id == of.topic_id, later.c.base_offset > of.base_offset
    )
    return and_(has_later, or_(of.end_offset <= stored_end, of.end_offset <= held))


def _switch(connection: Connection, switch: SegmentsReplaced, seq: int) -> int:
    added = 0
    if switch.entries_until:
        before = connection.execute(select(tidy_state)).one()
        after = before._asdict() | {"tidied_seq": switch.entries_until}
        connection.execute(update(tidy_state), after)
        added = checksum_of(tidy_state, [after.values()]) - checksum_of(tidy_state, [before])
    added -= _delete_replaced(connection, switch.replaced)
    return added + _put_in_force(connection, switch.objects, seq)


def _put_in_force(connection: Connection, objects: Sequence[StoredObject], seq: int) -> int:
    fresh = [
        {"object_id": object_id_of(seq, i), "key": stored.key, "length": stored.length}
        for i, stored in enumerate(objects)
    ]
    added = _insert(connection, stored_objects, fresh)
    return added + _insert(connection, stored_sections, _in_force(connection, objects, seq))


def _delete_replaced(connection: Connection, replaced: Sequence[ReplacedRange]) -> int:
    """Delete the rows in these ranges; their checksum. Most ranges of a switch have none: one
    question finds those that do."""
    of = stored_sections.c
    ranges = [(item.topic_id, item.base_offset, item.last_offset) for item in replaced]
    asked = func.json_each(json.dumps(ranges)).table_valued("value")
    topic_id, base, last = (func.json_extract(asked.c.value, f"$[{i}]") for i in range(3))
    inside = and_(of.topic_id == topic_id, of.base_offset.between(base, last))
    found = connection.execute(select(of.topic_id, of.base_offset).join(asked, inside)).all()
    added = 0
    for topic_id, base in found:
        which = and_(of.topic_id == topic_id, of.base_offset == base)
        added += _delete(connection, stored_sections, which)
    return added


def _in_force(
    connection: Connection, objects: Sequence[StoredObject], seq: int
) -> Iterator[rows.Row]:
    """Rows of the objects' sections that somebody can still read."""
    named = sorted({section.topic_id for stored in objects for section in stored.sections})
    asked = select(topics.c.topic_id, topics.c.held_offset)
    found = connection.execute(asked.where(one_of(topics.c.topic_id, named)))
    held: dict[int, int] = {topic_id: offset for topic_id, offset in found}  # noqa: C416
    for i, stored in enumerate(objects):
        for section in stored.sections:
            if section.last_offset >= held.get(section.topic_id, section.last_offset + 1):
                yield rows.of_stored_section(object_id_of(seq, i), section)


def _insert(connection: Connection, table: Table, fresh: Iterable[rows.Row]) -> int:
    """Insert rows, some at a time, as the event loop makes them; their checksum."""
    added, left = 0, iter(fresh)
    while some := list(islice(left, _ROWS_AT_ONCE)):
        connection.execute(insert(table), some)
        added += checksum_of(table, (row.values() for row in some))
    return added


def _delete(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    """Delete rows; their checksum."""
    gone: Sequence[Any] = connection.execute(select(table).where(which)).all()
    if gone and connection.execute(delete(table).where(which)).rowcount != len(gone):
        raise CorruptObjectError(f"rows of {table.name} could not be deleted")
    return checksum_of(table, gone)

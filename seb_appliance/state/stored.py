"""The rows of segments, packed objects, garbage and forks.

The rows are the same whether events come one by one or together. What a topic must keep for its
forks follows from the rows of `topics` alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from seb_appliance.broker.topics.topic import (
    Need,
    Run,
    held_offset,
    holes,
    with_run,
    without_below,
)
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.operations import (
    ObjectsAdopted,
    ObjectsCondemned,
    ObjectsRemoved,
    Operation,
    SegmentsReplaced,
    StoredObject,
    TopicCompacted,
    TopicDeleted,
    TopicForked,
    TopicTrimmed,
    object_id_of,
)
from seb_appliance.state.tables import Row, Tables, one_of

Parents: TypeAlias = Mapping[int, int | None]
"""The parents of topics, by topic id."""

# A topic that is marked as deleted goes if it has no forks, and so do the deleted topics above it
# of which it was the last fork.
DELETED_WITHOUT_FORKS: Final = """topic_id IN (
    WITH RECURSIVE gone(topic_id, parent_id) AS (
        SELECT topic_id, parent_id FROM topics
        WHERE topic_id = :topic_id
            AND NOT EXISTS (SELECT 1 FROM topics AS fork WHERE fork.parent_id = topics.topic_id)
        UNION ALL
        SELECT above.topic_id, above.parent_id FROM topics AS above JOIN gone
        WHERE above.topic_id = gone.parent_id AND above.deleted = 1
            AND NOT EXISTS (
                SELECT 1 FROM topics AS other
                WHERE other.parent_id = above.topic_id AND other.topic_id <> gone.topic_id
            )
    )
    SELECT topic_id FROM gone
)"""
# But each topic's last page, because later pages add up from it.
_PAGES_WITHOUT_READERS: Final = """
EXISTS (
    SELECT 1 FROM index_pages AS later
    WHERE later.topic_id = this.topic_id AND later.base_offset > this.base_offset
) AND (
    end_offset <= (
        SELECT coalesce(max(last_offset), -1) + 1 FROM stored_sections
        WHERE stored_sections.topic_id = this.topic_id
    )
    OR end_offset <= (SELECT held_offset FROM topics WHERE topics.topic_id = this.topic_id)
)"""
_UNREAD_BY_FORKS: Final = """
topic_id = :topic_id AND base_offset >= :begin AND last_offset < :end
AND EXISTS (
    SELECT 1 FROM stored_sections AS later
    WHERE later.topic_id = this.topic_id AND later.base_offset > this.base_offset
)"""
# Most ranges of a switch have no rows: one query finds those that have.
_IN_RANGES: Final = """(topic_id, base_offset) IN (
    SELECT topic_id, base_offset FROM json_each(:ranges) JOIN stored_sections
    ON topic_id = json_extract(value, '$[0]')
        AND base_offset BETWEEN json_extract(value, '$[1]') AND json_extract(value, '$[2]')
)"""


# --- forks ---


def parents_of(tables: Tables, operations: Iterable[Operation]) -> Parents:
    """Of the topics that `operations` fork, trim or delete, and of all above them; read before
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
        rows = tables.rows_in("topic_id, parent_id", "topics", "topic_id", sorted(named))
        fresh: dict[int, int | None] = dict(rows)
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


def hold(tables: Tables, topic_ids: Sequence[int]) -> None:
    """Bring `held_offset` of these topics up to date; forks come first."""
    forks = _forks_of(tables, topic_ids)
    query = (
        "SELECT deleted, log_start_offset, held_offset, parent_id, fork_offset FROM topics"
        " WHERE topic_id = :topic_id"
    )
    for topic_id in topic_ids:
        for deleted, start, known, parent_id, fork_offset in tables.rows(query, topic_id=topic_id):
            held = held_offset(None if deleted else start, forks[topic_id].values())
            if held != known:
                tables.update("topics", {"topic_id": topic_id}, held_offset=held)
                if parent_id in forks:
                    forks[parent_id][topic_id] = held, fork_offset


def _forks_of(tables: Tables, topic_ids: Sequence[int]) -> dict[int, dict[int, Need]]:
    """By topic id, what the forks of it need, by their topic ids."""
    found: dict[int, dict[int, Need]] = defaultdict(dict)
    columns = "parent_id, topic_id, held_offset, fork_offset"
    for parent_id, topic_id, held, fork_offset in tables.rows_in(
        columns, "topics", "parent_id", topic_ids
    ):
        found[parent_id][topic_id] = held, fork_offset
    return found


# --- objects ---


def project(tables: Tables, entries: Sequence[Entry], parents: Parents) -> None:
    """Apply `entries`, whose topics and entries have their rows already. `parents`: of the topics
    that they trim or delete."""
    for entry in entries:
        operations, seq = entry.contents.operations, entry.header.seq
        # In the order of the broker's memory: what is adopted may be deleted in the same entry.
        for operation in operations:
            if isinstance(operation, ObjectsAdopted):
                _add_objects(tables, operation.objects, seq)
        _delete_unneeded(tables, concerned(operations, parents))
        for operation in operations:
            _apply(tables, operation, entry)


def forget_tidied(tables: Tables, paged_seq: int, *, pages_too: bool) -> None:
    """Delete the rows of entries that are both tidied and in pages (up to `paged_seq`), and the
    pages that no reader needs any more."""
    tidied = "seq <= (SELECT tidied_seq FROM tidy_state) AND seq <= :paged_seq"
    tables.delete_where("journal_entries", tidied, paged_seq=paged_seq)
    if pages_too:
        tables.delete_where("index_pages", _PAGES_WITHOUT_READERS)


def _apply(tables: Tables, operation: Operation, entry: Entry) -> None:
    match operation:
        case SegmentsReplaced():
            if operation.entries_until:
                tables.update("tidy_state", {"id": 1}, tidied_seq=operation.entries_until)
            ranges = [(r.topic_id, r.base_offset, r.last_offset) for r in operation.replaced]
            tables.delete_where("stored_sections", _IN_RANGES, ranges=one_of(ranges))
            _add_objects(tables, operation.objects, entry.header.seq)
        case TopicCompacted(topic_id=topic_id, base_offset=base, last_offset=last):
            _set_runs(tables, topic_id, Run(base, last, entry.header.seq))
        case ObjectsCondemned(keys=keys):
            tables.delete_in("stored_objects", '"key"', keys)
            tables.insert("garbage", ((key, entry.header.created_us) for key in keys))
        case ObjectsRemoved(keys=keys):
            tables.delete_in("garbage", '"key"', keys)


def _add_objects(tables: Tables, objects: Sequence[StoredObject], seq: int) -> None:
    tables.insert(
        "stored_objects",
        ((object_id_of(seq, i), stored.key, stored.length) for i, stored in enumerate(objects)),
    )
    tables.insert("stored_sections", _readable_sections(tables, objects, seq))


def _readable_sections(tables: Tables, objects: Sequence[StoredObject], seq: int) -> Iterator[Row]:
    """Rows of the objects' sections that some topic can still read."""
    named = sorted({section.topic_id for stored in objects for section in stored.sections})
    held: dict[int, int] = dict(
        tables.rows_in("topic_id, held_offset", "topics", "topic_id", named)
    )
    for i, stored in enumerate(objects):
        for section in stored.sections:
            if section.last_offset >= held.get(section.topic_id, section.last_offset + 1):
                columns = msgspec.structs.astuple(section)
                yield (*columns[:4], object_id_of(seq, i), *columns[4:])


def _delete_unneeded(tables: Tables, topic_ids: Sequence[int]) -> None:
    """Delete the rows of these topics that are not needed any more (`_settle` in
    broker/topics/catalog.py), and bring their runs up to date."""
    if not topic_ids:
        return
    forks = _forks_of(tables, topic_ids)
    query = "SELECT deleted, log_start_offset, held_offset FROM topics WHERE topic_id = :topic_id"
    for topic_id in topic_ids:
        of_topic = {"topic_id": topic_id}
        rows = tables.rows(query, **of_topic)
        if not rows:
            tables.delete("index_pages", **of_topic)
            tables.delete("stored_sections", **of_topic)
        for _, _, held in rows:
            unheld = "topic_id = :topic_id AND last_offset < :held"
            tables.delete_where("stored_sections", unheld, held=held, **of_topic)
        _set_runs(tables, topic_id)
        needs = list(forks[topic_id].values())
        for deleted, start, _ in rows if needs else ():
            for begin, end in holes(None if deleted else start, needs):
                tables.delete_where(
                    "stored_sections", _UNREAD_BY_FORKS, begin=begin, end=end, **of_topic
                )


def _set_runs(tables: Tables, topic_id: int, added: Run | None = None) -> None:
    """Bring the topic's runs up to date with its log start, and with one more of them."""
    of_topic = {"topic_id": topic_id}
    start = tables.value(
        "SELECT log_start_offset FROM topics WHERE topic_id = :topic_id AND NOT deleted",
        **of_topic,
    )
    rows = tables.rows(
        "SELECT base_offset, last_offset, seq FROM compacted_runs WHERE topic_id = :topic_id"
        " ORDER BY base_offset",
        **of_topic,
    )
    before = [Run(*row) for row in rows]
    after = before if added is None else with_run(before, added)
    after = [] if start is None else list(without_below(after, start))
    if after != before:
        tables.delete("compacted_runs", **of_topic)
        tables.insert("compacted_runs", ((topic_id, *run) for run in after))

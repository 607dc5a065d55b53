"""Journal entries, in order, as changes of the tables. Replays results: it decides nothing.

Every transaction also moves the position and brings the checksum (digest.py) up to date, so the
file is at each commit exactly the state as of one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final

from sqlalchemy import (
    Connection,
    Delete,
    Insert,
    Table,
    Update,
    bindparam,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import sqlite

from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.entry import Entry, EntryHeader, Position
from seb_appliance.formats.operations import (
    ApiKeyChanged,
    ApiKeyCreated,
    ApiKeyRevoked,
    ApiKeyRotated,
    Append,
    AuditNoted,
    Event,
    GroupDeleted,
    GroupReset,
    LeaseReleased,
    LeaseTaken,
    OffsetsCommitted,
    StreamSet,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicForked,
    TopicTrimmed,
    UserRemoved,
    UserSet,
)
from seb_appliance.state import audit, index_pages, lineage, retries, rows, stored
from seb_appliance.state.digest import CHECKSUM_MODULUS, row_checksum
from seb_appliance.state.found import checksum_of, checksum_where, one_of, rows_with
from seb_appliance.state.schema import (
    api_keys,
    group_offsets,
    group_owners,
    journal_entries,
    journal_state,
    leases,
    streams,
    topics,
    users,
    writers,
)


def _upsert(table: Table) -> Insert:
    """Insert a row, or replace the one with its key."""
    statement = sqlite.insert(table)
    replaced = {c.name: c for c in statement.excluded if not table.c[c.name].primary_key}
    return statement.on_conflict_do_update(index_elements=table.primary_key, set_=replaced)


@dataclass(frozen=True, slots=True)
class Change:
    """One statement with its parameters. `exact`: it must meet exactly one row."""

    statement: Insert | Update | Delete
    parameters: rows.Row
    exact: bool = True


_OF_TOPIC: Final = (TopicCreated, TopicForked, TopicChanged, TopicDeleted, TopicTrimmed)
_OF_API_KEY: Final = (ApiKeyCreated, ApiKeyChanged, ApiKeyRotated, ApiKeyRevoked)
_OF_USER: Final = (UserSet, UserRemoved)
_OF_GROUP: Final = (OffsetsCommitted, GroupReset, GroupDeleted, LeaseTaken, LeaseReleased)

_INSERT_ENTRY: Final = insert(journal_entries)
_INSERT_TOPIC: Final = insert(topics)
_UPDATE_TOPIC: Final = update(topics).where(topics.c.topic_id == bindparam("of_topic_id"))
_TRIM_TOPIC: Final = _UPDATE_TOPIC.values(
    log_start_offset=bindparam("start"), held_offset=bindparam("start")
)
_OWN_TOPIC: Final = update(topics).where(topics.c.name == bindparam("of_name"))
_SET_STREAM: Final = _upsert(streams)
_DELETE_STREAM: Final = delete(streams).where(streams.c.topic_id == bindparam("of_topic_id"))
_INSERT_API_KEY: Final = insert(api_keys)
_UPDATE_API_KEY: Final = update(api_keys).where(api_keys.c.api_key_id == bindparam("of_api_key_id"))
_ROTATE_API_KEY: Final = _UPDATE_API_KEY.values(
    previous_sha256=api_keys.c.secret_sha256,  # as it was before this statement
    secret_sha256=bindparam("new_sha256"),
    overlap_until_us=bindparam("until_us"),
)
_DELETE_API_KEY: Final = delete(api_keys).where(api_keys.c.api_key_id == bindparam("of_api_key_id"))
_SET_USER: Final = _upsert(users)
_DELETE_USER: Final = delete(users).where(users.c.name == bindparam("of_user"))
_SET_OFFSET: Final = _upsert(group_offsets)
_SET_LEASE: Final = _upsert(leases)
_DELETE_OFFSETS: Final = delete(group_offsets).where(
    group_offsets.c.group_name == bindparam("of_group")
)
_DELETE_OFFSETS_ON: Final = delete(group_offsets).where(
    group_offsets.c.topic_id == bindparam("of_topic_id")
)
_ON_TOPIC: Final = select(group_offsets.c.group_name).where(
    group_offsets.c.topic_id == bindparam("of_topic_id")
)
_STANDS: Final = exists().where(group_offsets.c.group_name == group_owners.c.group_name)
_IS_LEASED: Final = exists().where(leases.c.group_name == group_owners.c.group_name)
_OWN_GROUP: Final = sqlite.insert(group_owners).on_conflict_do_nothing()
_DISOWN_GROUP: Final = delete(group_owners).where(
    group_owners.c.group_name == bindparam("of_group")
)
_DISOWN_UNLESS_IT_STANDS: Final = _DISOWN_GROUP.where(~_STANDS)
_DISOWN_ON: Final = delete(group_owners).where(  # groups that stand nowhere but on this topic
    group_owners.c.group_name.in_(_ON_TOPIC),
    ~_STANDS.where(group_offsets.c.topic_id != bindparam("of_topic_id")),
    ~_IS_LEASED,
)
_DELETE_LEASE: Final = delete(leases).where(leases.c.group_name == bindparam("of_group"))


def project(connection: Connection, entries: Sequence[Entry]) -> int:
    """Apply `entries`, which follow the file's position, in the caller's transaction.

    Returns the last entry whose sections are in pages of the index. Raises CorruptObjectError if an
    entry does not follow, or speaks of something that is not there.
    """
    found = connection.execute(select(journal_state)).one()
    _check_chain(entries, rows.to_position(found), found.bucket_id)
    state = found._asdict()
    waiting = state["waiting_sections"]
    for stretch, ends in index_pages.stretches(entries, state["paged_seq"], waiting):
        state = _project(connection, stretch, state, ends=ends)
    paged_seq: int = state["paged_seq"]
    return paged_seq


def _project(
    connection: Connection, entries: Sequence[Entry], state: rows.Row, *, ends: bool
) -> rows.Row:
    """Apply `entries`, which lie in one stretch of the journal; whether it `ends` with them.
    `state`: the position's row, before; it is returned as it is after."""
    entry_rows = [rows.of_entry(entry) for entry in entries]
    connection.execute(_INSERT_ENTRY, entry_rows)
    placed = [
        (operation, entry.header)
        for entry in entries
        for operation in entry.contents.operations
        if not isinstance(operation, Append)
    ]
    events = [event for event, _ in placed]
    added = checksum_of(journal_entries, (row.values() for row in entry_rows))
    parents = lineage.parents_of(connection, events)
    concerned = lineage.concerned(events, parents)
    if events:
        of_groups = _groups_touched(connection, events)
        added -= _checksum_of_touched(connection, events, concerned, of_groups)
        _apply(connection, [change for each in placed for change in changes_of(*each)])
        lineage.hold(connection, concerned)
        added += _checksum_of_touched(connection, events, concerned, of_groups)
        added += audit.project(connection, events)
    added += stored.project(connection, entries, parents)
    grown, requests_place = retries.project(connection, entries, state["requests_place"])
    added += grown + _project_writers(connection, entries, state)
    given = [e.topic_id + 1 for e in events if isinstance(e, TopicCreated | TopicForked)]
    header = entries[-1].header
    paged_seq = state["paged_seq"]
    waiting = state["waiting_sections"] + sum(len(entry.contents.sections) for entry in entries)
    if ends:
        added += index_pages.make_pages(connection, paged_seq, header.seq)
        paged_seq, waiting = header.seq, 0
    added += stored.forget_tidied(connection, paged_seq, pages_too=ends)
    changed = rows.of_position(header.position) | {
        "bucket_id": header.bucket_id,
        "next_topic_id": max([state["next_topic_id"], *given]),
        "paged_seq": paged_seq,
        "waiting_sections": waiting,
        "requests_place": requests_place,
    }
    return _update_state(connection, state, changed, added)


def _project_writers(connection: Connection, entries: Sequence[Entry], state: rows.Row) -> int:
    """Note each writer at its first entry; what that adds to the checksum."""
    fresh = []
    known = (state["epoch"], state["writer_id"])
    for header in (entry.header for entry in entries):
        if (header.epoch, header.writer_id) != known:
            known = (header.epoch, header.writer_id)
            fresh.append(rows.of_writer(header))
    if fresh:
        connection.execute(insert(writers), fresh)
    return checksum_of(writers, (row.values() for row in fresh))


def changes_of(event: Event, header: EntryHeader) -> list[Change]:
    """The statements for one event of the entry with `header`."""
    match event:
        case TopicCreated():
            return [Change(_INSERT_TOPIC, rows.of_topic(event))]
        case TopicForked():
            return [Change(_INSERT_TOPIC, rows.of_fork(event))]
        case TopicChanged():
            settings = rows.of_settings(event.settings)
            return [Change(_UPDATE_TOPIC, {"of_topic_id": event.topic_id, "settings": settings})]
        case TopicDeleted():
            of_topic = {"of_topic_id": event.topic_id}
            return [
                Change(lineage.MARK, of_topic),
                Change(lineage.DELETE_MARKED, of_topic, exact=False),
                Change(_DISOWN_ON, of_topic, exact=False),
                Change(_DELETE_OFFSETS_ON, of_topic, exact=False),
                Change(_DELETE_STREAM, of_topic, exact=False),
            ]
        case StreamSet():
            return [Change(_SET_STREAM, rows.of_stream(event))]
        case TopicTrimmed():
            start = {"start": event.log_start_offset}
            return [Change(_TRIM_TOPIC, {"of_topic_id": event.topic_id} | start)]
        case ApiKeyCreated():
            return [Change(_INSERT_API_KEY, rows.of_api_key(event))]
        case ApiKeyChanged():
            of_key = {"of_api_key_id": event.api_key_id}
            return [Change(_UPDATE_API_KEY, of_key | rows.of_api_key_changed(event))]
        case ApiKeyRotated():
            return [Change(_ROTATE_API_KEY, rows.of_api_key_rotated(event))]
        case ApiKeyRevoked():
            return [Change(_DELETE_API_KEY, {"of_api_key_id": event.api_key_id})]
        case UserSet():
            return [Change(_SET_USER, rows.of_user(event))]
        case UserRemoved():
            return [Change(_DELETE_USER, {"of_user": event.name})]
        case AuditNoted(action="topic_created" | "topic_forked"):
            owner = {"of_name": event.subject, "owner": event.actor}
            return [Change(_OWN_TOPIC, owner, exact=False)]
        case AuditNoted(action="group_created"):
            owner = {"group_name": event.subject, "owner": event.actor}
            return [Change(_OWN_GROUP, owner, exact=False)]
    return _changes_of_group(event, header)


def _changes_of_group(event: Event, header: EntryHeader) -> list[Change]:
    match event:
        case OffsetsCommitted() | GroupReset():
            return [
                Change(_SET_OFFSET, rows.of_group_offset(event.group, item, header.created_us))
                for item in event.offsets
            ]
        case GroupDeleted():
            of_group = {"of_group": event.group}
            return [
                Change(_DELETE_OFFSETS, of_group, exact=False),
                Change(_DELETE_LEASE, of_group, exact=False),
                Change(_DISOWN_GROUP, of_group, exact=False),
            ]
        case LeaseTaken():
            return [Change(_SET_LEASE, rows.of_lease(event, header.seq))]
        case LeaseReleased():
            of_group = {"of_group": event.group}
            return [
                Change(_DELETE_LEASE, of_group),
                Change(_DISOWN_UNLESS_IT_STANDS, of_group, exact=False),
            ]
    return []


def _check_chain(entries: Sequence[Entry], position: Position, bucket_id: bytes | None) -> None:
    for header in (entry.header for entry in entries):
        if not header.follows(position):
            raise CorruptObjectError(
                f"entry {header.seq} (after {header.prev_seq}, header CRC"
                f" {header.prev_header_crc:#x}) does not follow the state at {position.seq}"
                f" (header CRC {position.header_crc:#x})"
            )
        if bucket_id not in (None, header.bucket_id):
            raise CorruptObjectError(
                f"entry {header.seq} is of bucket {header.bucket_id.hex()}, the state is of"
                f" {bucket_id.hex() if bucket_id else bucket_id}"
            )
        position, bucket_id = header.position, header.bucket_id


def _apply(connection: Connection, changes: Iterable[Change]) -> None:
    """Run statements in order; neighbours of one kind go to SQLite together."""
    for statement, neighbours in groupby(changes, key=attrgetter("statement")):
        together = list(neighbours)
        result = connection.execute(statement, [change.parameters for change in together])
        if together[0].exact and result.rowcount != len(together):
            raise CorruptObjectError(
                f"{len(together)} events on {statement.table.name} met {result.rowcount} rows:"
                f" {[change.parameters for change in together]}"
            )


def _groups_touched(connection: Connection, events: Sequence[Event]) -> list[str]:
    """Groups that `events` name, and those that stand on topics which they delete."""
    found = {event.group for event in events if isinstance(event, _OF_GROUP)}
    found |= {note.subject for note in _notes(events, "group_created")}
    deleted = [event.topic_id for event in events if isinstance(event, TopicDeleted)]
    if deleted:  # this looks at all rows
        named = select(group_offsets.c.group_name).where(one_of(group_offsets.c.topic_id, deleted))
        found.update(connection.execute(named).scalars())
    return list(found)


def _notes(events: Iterable[Event], *actions: str) -> Iterator[AuditNoted]:
    return (e for e in events if isinstance(e, AuditNoted) and e.action in actions)


def _checksum_of_touched(
    connection: Connection,
    events: Sequence[Event],
    concerned: Sequence[int],
    of_groups: Sequence[str],
) -> int:
    """The sum over those rows that `events` name, as they are now. `concerned`: topics whose rows
    change by what happens to others, too."""
    of_topics = [event.topic_id for event in events if isinstance(event, _OF_TOPIC)]
    of_topics += concerned
    of_names = [note.subject for note in _notes(events, "topic_created", "topic_forked")]
    of_streams = [e.topic_id for e in events if isinstance(e, StreamSet | TopicDeleted)]
    of_keys = [event.api_key_id for event in events if isinstance(event, _OF_API_KEY)]
    of_users = list({event.name for event in events if isinstance(event, _OF_USER)})
    by_group = (group_offsets, group_owners, leases) if of_groups else ()
    return (
        checksum_of(topics, _topics_with(connection, of_topics, of_names))
        + checksum_of(streams, rows_with(connection, streams.c.topic_id, of_streams))
        + checksum_of(api_keys, rows_with(connection, api_keys.c.api_key_id, of_keys))
        + checksum_of(users, rows_with(connection, users.c.name, of_users))
        + sum(
            checksum_where(connection, table, one_of(table.c.group_name, of_groups))
            for table in by_group
        )
    )


def _topics_with(
    connection: Connection, topic_ids: Sequence[int], names: Sequence[str]
) -> Sequence[rows.ResultRow]:
    if not names:
        return rows_with(connection, topics.c.topic_id, topic_ids)
    which = or_(one_of(topics.c.topic_id, topic_ids), one_of(topics.c.name, names))
    return connection.execute(select(topics).where(which)).all()


def _update_state(
    connection: Connection, state: rows.Row, changed: rows.Row, added_checksum: int
) -> rows.Row:
    """Write the position's row, and the checksum that follows from all that was changed; the row
    that was written."""
    before = dict(state)
    checksum = before.pop("checksum") + added_checksum
    after = before | changed
    checksum -= row_checksum(journal_state.name, before.values())
    checksum += row_checksum(journal_state.name, after.values())
    after["checksum"] = checksum % CHECKSUM_MODULUS
    connection.execute(update(journal_state), after)
    return after

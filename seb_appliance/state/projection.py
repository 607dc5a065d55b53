"""Projects journal entries, in order, into the tables. It replays results and decides nothing.

Every transaction also moves the position and updates the checksum (tables.py), so that at each
commit the file is exactly the state as of one entry.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.api_key_members import Quotas
from seb_appliance.formats.contents import encode_contents
from seb_appliance.formats.entry import Entry, EntryHeader
from seb_appliance.formats.operations import (
    ApiKeyChanged,
    ApiKeyCreated,
    ApiKeyRevoked,
    ApiKeyRotated,
    Append,
    AuditNoted,
    DelayEvent,
    DocumentRemoved,
    DocumentSet,
    Event,
    GroupDeleted,
    GroupReset,
    LeaseReleased,
    LeaseTaken,
    OffsetsCommitted,
    QueueEvent,
    StreamSet,
    TableEvent,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicForked,
    TopicTrimmed,
    UserRemoved,
    UserSet,
)
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.state import bounded, stored
from seb_appliance.state.rows import delays, index_pages, lake, queues
from seb_appliance.state.tables import JournalState, Row, Tables

_OFFSETS: Final = "SELECT 1 FROM group_offsets AS o WHERE o.group_name = this.group_name"
# Groups whose offsets are all on this topic, and that have no lease.
_ONLY_ON_TOPIC: Final = f"""
group_name IN (SELECT group_name FROM group_offsets WHERE topic_id = :topic_id)
AND NOT EXISTS ({_OFFSETS} AND o.topic_id <> :topic_id)
AND NOT EXISTS (SELECT 1 FROM leases AS l WHERE l.group_name = this.group_name)
"""  # noqa: S608 - our own names
_WITHOUT_OFFSETS: Final = f"group_name = :group AND NOT EXISTS ({_OFFSETS})"


def project(connection: sqlite3.Connection, entries: Sequence[Entry]) -> int:
    """Apply `entries`, which follow the file's position, in the caller's transaction.

    Returns the last entry whose sections are in pages of the index. Raises CorruptObjectError if an
    entry does not follow, or refers to a row that does not exist.
    """
    state = JournalState.read(connection)
    _check_chain(entries, state)
    tables = Tables(connection)
    cut = index_pages.stretches(entries, state.paged_seq, state.waiting_sections)
    for stretch, ends in cut:
        state = _project(tables, stretch, state, ends=ends)
    return state.paged_seq


def _project(
    tables: Tables, entries: Sequence[Entry], state: JournalState, *, ends: bool
) -> JournalState:
    """Apply `entries`, which lie in one stretch of the journal; whether it `ends` with them.
    `state`: the position before; the position after is returned."""
    tables.insert("journal_entries", map(_entry_row, entries))
    known = (state.epoch, state.writer_id)
    for header in (entry.header for entry in entries):
        if (header.epoch, header.writer_id) != known:
            known = (header.epoch, header.writer_id)
            tables.insert("writers", [(header.seq, *known)])
    placed = [
        (operation, entry.header)
        for entry in entries
        for operation in entry.contents.operations
        if not isinstance(operation, Append)
    ]
    events = [event for event, _ in placed]
    parents = stored.parents_of(tables, events)
    for event, header in placed:
        apply_event(tables, event, header)
    stored.hold(tables, stored.concerned(events, parents))
    bounded.project_audit(tables, events)
    stored.project(tables, entries, parents)
    requests_place = bounded.project_requests(tables, entries, state.requests_place)
    bounded.project_producers(tables, entries)
    header = entries[-1].header
    paged_seq = state.paged_seq
    waiting = state.waiting_sections + sum(len(entry.contents.sections) for entry in entries)
    if ends:
        index_pages.make_pages(tables, paged_seq, header.seq)
        paged_seq, waiting = header.seq, 0
    stored.forget_tidied(tables, paged_seq, pages_too=ends)
    given = [e.topic_id + 1 for e in events if isinstance(e, TopicCreated | TopicForked)]
    position = header.position
    after = msgspec.structs.replace(
        state,
        bucket_id=header.bucket_id,
        applied_seq=position.seq,
        epoch=position.epoch,
        writer_id=position.writer_id,
        entry_id=position.entry_id,
        header_crc=position.header_crc,
        created_us=position.created_us,
        next_topic_id=max([state.next_topic_id, *given]),
        paged_seq=paged_seq,
        waiting_sections=waiting,
        requests_place=requests_place,
    )
    return tables.set_state(state, after)


def _check_chain(entries: Sequence[Entry], state: JournalState) -> None:
    position, bucket_id = state.position, state.bucket_id
    for header in (entry.header for entry in entries):
        if not header.follows(position):
            raise CorruptObjectError(
                f"entry {header.seq} (after {header.prev_seq}, header CRC"
                f" {header.prev_header_crc:#x}) does not follow the state at {position.seq}"
                f" (header CRC {position.header_crc:#x})"
            )
        if bucket_id is not None and header.bucket_id != bucket_id:
            raise CorruptObjectError(
                f"entry {header.seq} is of bucket {header.bucket_id.hex()}, the state is of"
                f" {bucket_id.hex()}"
            )
        position, bucket_id = header.position, header.bucket_id


def _entry_row(entry: Entry) -> Row:
    header = entry.header
    return (
        header.seq,
        header.epoch,
        header.writer_id,
        header.created_us,
        header.length,
        header.sections_at,
        encode_contents(entry.contents),
    )


def apply_event(tables: Tables, event: Event, header: EntryHeader) -> None:
    """Change the tables by one event of the entry with `header`."""
    match event:
        case TopicCreated() | TopicForked() | TopicChanged() | TopicDeleted() | TopicTrimmed():
            _apply_to_topic(tables, event)
        case ApiKeyCreated() | ApiKeyChanged() | ApiKeyRotated() | ApiKeyRevoked():
            _apply_to_api_key(tables, event)
        case UserSet(name=name) | UserRemoved(name=name):
            removed = tables.delete("users", name=name)
            if isinstance(event, UserSet):
                tables.insert("users", [(name, event.role, event.password_hash, event.set_us)])
            else:
                _must_be_one(removed, event)
        case DocumentSet(kind=kind, name=name) | DocumentRemoved(kind=kind, name=name):
            removed = tables.delete("documents", kind=kind, name=name)
            if isinstance(event, DocumentSet):
                tables.insert("documents", [(kind, name, event.document, event.set_us)])
            else:
                _must_be_one(removed, event)
        case StreamSet(topic_id=topic_id):
            tables.delete("streams", topic_id=topic_id)
            tables.insert("streams", [(topic_id, _json(event.stream))])
        case _ if isinstance(event, TableEvent):
            lake.project(tables, event, header.created_us)
        case _ if isinstance(event, QueueEvent):
            queues.project(tables, event, header.created_us)
        case _ if isinstance(event, DelayEvent):
            delays.project(tables, event)
        case AuditNoted(action="topic_created" | "topic_forked"):
            tables.update("topics", {"name": event.subject}, owner=event.actor)
        case AuditNoted(action="group_created", subject=name):
            if not tables.rows("SELECT 1 FROM group_owners WHERE group_name = :name", name=name):
                tables.insert("group_owners", [(name, event.actor)])
        case _:
            _apply_to_group(tables, event, header)


def _apply_to_topic(
    tables: Tables, event: TopicCreated | TopicForked | TopicChanged | TopicDeleted | TopicTrimmed
) -> None:
    key = {"topic_id": event.topic_id}
    match event:
        case TopicCreated() | TopicForked():
            start, parent_id, fork_offset = 0, None, 0
            if isinstance(event, TopicForked):
                start, parent_id = event.log_start_offset, event.parent_id
                fork_offset = event.fork_offset
            settings = _settings_json(event.settings)
            row = (event.topic_id, event.name, event.created_us, settings, start)
            tables.insert("topics", [(*row, parent_id, fork_offset, 0, start, "")])
        case TopicChanged():
            settings = _settings_json(event.settings)
            _must_be_one(tables.update("topics", key, settings=settings), event)
        case TopicDeleted():
            _must_be_one(tables.update("topics", key, deleted=1), event)
            tables.delete_where("topics", stored.DELETED_WITHOUT_FORKS, **key)
            tables.delete_where("group_owners", _ONLY_ON_TOPIC, **key)
            tables.delete("group_offsets", **key)
            tables.delete("streams", **key)
            queues.forget_topic(tables, event.topic_id)
        case TopicTrimmed():
            start = event.log_start_offset
            changed = tables.update("topics", key, log_start_offset=start, held_offset=start)
            _must_be_one(changed, event)


def _apply_to_api_key(
    tables: Tables, event: ApiKeyCreated | ApiKeyChanged | ApiKeyRotated | ApiKeyRevoked
) -> None:
    key = {"api_key_id": event.api_key_id}
    match event:
        case ApiKeyCreated():
            row = (
                event.api_key_id,
                event.name,
                event.secret_sha256,
                _json(event.grants),
                event.created_us,
                event.expires_us,
                event.description,
                int(event.disabled),
                _settings_json(event.quotas),
                None,
                None,
            )
            tables.insert("api_keys", [row])
        case ApiKeyChanged():
            members = msgspec.structs.asdict(event)
            members |= {"grants": _json(event.grants), "quotas": _settings_json(event.quotas)}
            del members["version"], members["api_key_id"]
            _must_be_one(tables.update("api_keys", key, **members), event)
        case ApiKeyRotated():
            query = "SELECT secret_sha256 FROM api_keys WHERE api_key_id = :api_key_id"
            changed = tables.update(
                "api_keys",
                key,
                previous_sha256=tables.value(query, **key),
                secret_sha256=event.secret_sha256,
                overlap_until_us=event.overlap_until_us,
            )
            _must_be_one(changed, event)
        case ApiKeyRevoked():
            _must_be_one(tables.delete("api_keys", **key), event)


def _apply_to_group(tables: Tables, event: Event, header: EntryHeader) -> None:
    match event:
        case OffsetsCommitted(group=group) | GroupReset(group=group):
            for item in event.offsets:
                tables.delete("group_offsets", group_name=group, topic_id=item.topic_id)
                row = (group, item.topic_id, item.offset, item.metadata, header.created_us)
                tables.insert("group_offsets", [row])
        case GroupDeleted(group=group):
            for table in ("group_offsets", "leases", "group_owners"):
                tables.delete(table, group_name=group)
        case LeaseTaken(group=group):
            tables.delete("leases", group_name=group)
            tables.insert("leases", [(group, header.seq, event.holder, event.ttl_ms)])
        case LeaseReleased(group=group):
            _must_be_one(tables.delete("leases", group_name=group), event)
            tables.delete_where("group_owners", _WITHOUT_OFFSETS, group=group)


def _must_be_one(changed: int, event: Event) -> None:
    if changed != 1:
        raise CorruptObjectError(f"{event} changed {changed} rows instead of one")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _settings_json(settings: TopicSettings | Quotas) -> str:
    """JSON of what was set, so that a setting of a later release changes no older row."""
    fields = msgspec.structs.asdict(settings)
    return _json({name: value for name, value in fields.items() if value is not None})

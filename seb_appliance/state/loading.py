"""Everything that the broker keeps in memory, read from the tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from seb_appliance.broker.ports import (
    ApiKeyRow,
    AuditQuery,
    AuditRow,
    DocumentRow,
    EntryRef,
    EntryRow,
    GarbageRow,
    GroupOffsetRow,
    LeaseRow,
    LoadedState,
    ObjectRow,
    PagedRow,
    TopicRow,
    UserRow,
    WriterRow,
)
from seb_appliance.errors import BadBatchError, CorruptObjectError
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.contents import decode_sections
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.operations import StoredSection
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.state import bounded
from seb_appliance.state.rows import delays, lake, queues
from seb_appliance.state.rows.index_pages import LAST_PAGES
from seb_appliance.state.tables import JournalState, Row

_Decoders = Mapping[int, Callable[[Any], Any]]

# By column.
_OF_TOPIC: Final[_Decoders] = {3: msgspec.json.Decoder(TopicSettings).decode, 7: bool}
_OF_STREAM: Final[_Decoders] = {1: msgspec.json.Decoder(StreamState).decode}
_OF_API_KEY: Final[_Decoders] = {
    3: msgspec.json.Decoder(tuple[Grant, ...]).decode,
    7: bool,
    8: msgspec.json.Decoder(Quotas).decode,
}
_ENTRIES: Final = """
SELECT seq, epoch, writer_id, created_us, sections_at, contents FROM journal_entries
WHERE seq > ? ORDER BY seq
"""
_STORED: Final = """
SELECT object_id, topic_id, base_offset, last_offset, record_count, at, length, crc, created_us,
    largest_timestamp_us
FROM stored_sections ORDER BY topic_id, base_offset
"""
_AUDIT: Final = """
SELECT * FROM audit
WHERE (:before IS NULL OR number < :before)
    AND (:actor IS NULL OR actor = :actor)
    AND (:subject IS NULL OR subject = :subject)
    AND (:action IS NULL OR action = :action)
    AND (:from_us IS NULL OR at_us >= :from_us)
    AND (:until_us IS NULL OR at_us < :until_us)
ORDER BY number DESC LIMIT :most
"""


_DOCUMENTS: Final = "SELECT * FROM documents ORDER BY kind, name"


def load(connection: sqlite3.Connection) -> LoadedState:
    """The whole state, as of one position. Raises CorruptObjectError if a row cannot be read."""
    try:
        return _load(connection)
    except (BadBatchError, msgspec.DecodeError) as error:
        raise CorruptObjectError(f"a row of the local state cannot be read: {error}") from error


def _load(connection: sqlite3.Connection) -> LoadedState:
    def rows(query: str, *parameters: Any) -> sqlite3.Cursor:
        return connection.execute(query, parameters)

    state = JournalState.read(connection)
    topics = rows("SELECT * FROM topics ORDER BY topic_id")
    living = [TopicRow(*_decoded(row, _OF_TOPIC)) for row in topics]
    streams = [_decoded(row, _OF_STREAM) for row in rows("SELECT * FROM streams")]
    api_keys = rows("SELECT * FROM api_keys ORDER BY created_us, api_key_id")
    (tidied_seq,) = rows("SELECT tidied_seq FROM tidy_state").fetchone()
    return LoadedState(
        position=state.position,
        next_topic_id=state.next_topic_id,
        topics=living,
        streams=[(topic_id, stream) for topic_id, stream in streams],
        api_keys=[ApiKeyRow(*_decoded(row, _OF_API_KEY)) for row in api_keys],
        users=[UserRow(*row) for row in rows("SELECT * FROM users ORDER BY name")],
        documents=[DocumentRow(*row) for row in rows(_DOCUMENTS)],
        lake_tables=lake.load(connection),
        queues=queues.load(connection),
        delays=delays.load(connection),
        writers=[WriterRow(*row) for row in rows("SELECT * FROM writers ORDER BY first_seq")],
        paged=[PagedRow(*row) for row in rows(LAST_PAGES)],
        entries=_entries(rows(_ENTRIES, state.paged_seq), {topic.topic_id for topic in living}),
        tidied_seq=tidied_seq,
        untidied=rows(
            "SELECT seq, length, created_us FROM journal_entries WHERE seq > ? ORDER BY seq",
            tidied_seq,
        ).fetchall(),
        objects=[ObjectRow(*row) for row in rows("SELECT * FROM stored_objects")],
        stored=[(object_id, StoredSection(*row)) for object_id, *row in rows(_STORED)],
        garbage=[GarbageRow(*row) for row in rows("SELECT * FROM garbage")],
        runs=rows("SELECT * FROM compacted_runs ORDER BY topic_id, base_offset").fetchall(),
        group_owners=dict(rows("SELECT * FROM group_owners")),
        group_offsets=[GroupOffsetRow(*row) for row in rows("SELECT * FROM group_offsets")],
        leases=[LeaseRow(*row) for row in rows("SELECT * FROM leases")],
        requests=list(map(bounded.to_request, rows("SELECT * FROM requests ORDER BY place"))),
        requests_place=state.requests_place,
        producers=list(map(bounded.to_producer, rows("SELECT * FROM producers ORDER BY place"))),
    )


def audit(connection: sqlite3.Connection, query: AuditQuery) -> list[AuditRow]:
    """The newest actions that `query` asks for, newest first."""
    parameters = {name: getattr(query, name) for name in query.__dataclass_fields__}
    return [AuditRow(*row) for row in connection.execute(_AUDIT, parameters)]


def audited(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Each actor with each of its actions."""
    return connection.execute("SELECT DISTINCT actor, action FROM audit").fetchall()


def _entries(rows: sqlite3.Cursor, living: set[int]) -> list[EntryRow]:
    """The entries with records of living topics, oldest first; sections of deleted topics are left
    out."""
    entries = []
    for *ref, created_us, sections_at, contents in rows:
        sections = [item for item in decode_sections(contents) if item.topic_id in living]
        if sections:
            entries.append(EntryRow(EntryRef(*ref), created_us, sections_at, sections))
    return entries


def _decoded(row: Row, decoders: _Decoders) -> list[Any]:
    columns = list(row)
    for i, decode in decoders.items():
        columns[i] = decode(columns[i])
    return columns

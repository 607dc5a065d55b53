"""Journal entries, in order, as changes of the tables. Replays results: it decides nothing.

Every transaction also moves the position and brings the checksum (digest.py) up to date, so the
file is at each commit exactly the state as of one entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    Column,
    Connection,
    Delete,
    Insert,
    Table,
    Update,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.entry import Entry, Position
from seb_appliance.formats.operations import (
    ApiKeyCreated,
    ApiKeyRevoked,
    Append,
    Event,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
)
from seb_appliance.state import rows
from seb_appliance.state.digest import CHECKSUM_MODULUS, row_checksum
from seb_appliance.state.schema import api_keys, journal_entries, journal_state, topics

Change = tuple[Insert | Update | Delete, rows.Row]

_OF_TOPIC: Final = (TopicCreated, TopicChanged, TopicDeleted)
_OF_API_KEY: Final = (ApiKeyCreated, ApiKeyRevoked)

_INSERT_ENTRY: Final = insert(journal_entries)
_INSERT_TOPIC: Final = insert(topics)
_UPDATE_TOPIC: Final = update(topics).where(topics.c.topic_id == bindparam("of_topic_id"))
_DELETE_TOPIC: Final = delete(topics).where(topics.c.topic_id == bindparam("of_topic_id"))
_INSERT_API_KEY: Final = insert(api_keys)
_DELETE_API_KEY: Final = delete(api_keys).where(api_keys.c.api_key_id == bindparam("of_api_key_id"))


def project(connection: Connection, entries: Sequence[Entry]) -> Position:
    """Apply `entries`, which follow the file's position, in the caller's transaction.

    Returns the new position. Raises CorruptObjectError if one does not follow, or speaks of
    something that is not there.
    """
    state = connection.execute(select(journal_state)).one()
    _check_chain(entries, rows.to_position(state), state.bucket_id)
    entry_rows = [rows.of_entry(entry) for entry in entries]
    connection.execute(_INSERT_ENTRY, entry_rows)
    events = [
        operation
        for entry in entries
        for operation in entry.contents.operations
        if not isinstance(operation, Append)
    ]
    added = _checksum(journal_entries, (row.values() for row in entry_rows))
    if events:
        added -= _checksum_of_touched(connection, events)
        _apply(connection, events)
        added += _checksum_of_touched(connection, events)
    given = [event.topic_id + 1 for event in events if isinstance(event, TopicCreated)]
    header = entries[-1].header
    changed = rows.of_position(header.position) | {
        "bucket_id": header.bucket_id,
        "next_topic_id": max([state.next_topic_id, *given]),
    }
    _update_state(connection, state, changed, added)
    return header.position


def change_of(event: Event) -> Change | None:
    """The statement for one event and its parameters; None when no row tells of it."""
    match event:
        case TopicCreated():
            return _INSERT_TOPIC, rows.of_topic(event)
        case TopicChanged():
            settings = rows.of_settings(event.settings)
            return _UPDATE_TOPIC, {"of_topic_id": event.topic_id, "settings": settings}
        case TopicDeleted():
            return _DELETE_TOPIC, {"of_topic_id": event.topic_id}
        case ApiKeyCreated():
            return _INSERT_API_KEY, rows.of_api_key(event)
        case ApiKeyRevoked():
            return _DELETE_API_KEY, {"of_api_key_id": event.api_key_id}
    return None


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


def _apply(connection: Connection, events: Iterable[Event]) -> None:
    """Run the events' statements in order; neighbours of one kind go to SQLite together."""
    changes = [change for change in map(change_of, events) if change]
    for statement, group in groupby(changes, key=itemgetter(0)):
        parameters = [parameter for _, parameter in group]
        result = connection.execute(statement, parameters)
        if result.rowcount != len(parameters):
            raise CorruptObjectError(
                f"{len(parameters)} events on {statement.table.name} met {result.rowcount} rows:"
                f" {parameters}"
            )


def _checksum_of_touched(connection: Connection, events: Sequence[Event]) -> int:
    """The sum over those rows of topics and API keys that `events` name, as they are now."""
    topic_ids = [event.topic_id for event in events if isinstance(event, _OF_TOPIC)]
    api_key_ids = [event.api_key_id for event in events if isinstance(event, _OF_API_KEY)]
    return _checksum(topics, _rows_with(connection, topics.c.topic_id, topic_ids)) + _checksum(
        api_keys, _rows_with(connection, api_keys.c.api_key_id, api_key_ids)
    )


def _rows_with(
    connection: Connection, column: Column[Any], values: Sequence[int | str]
) -> Sequence[rows.ResultRow]:
    """The table's rows whose `column` is one of `values`, however many these are."""
    if not values:
        return ()
    # One JSON parameter: SQLite bounds the number of parameters.
    wanted = select(func.json_each(json.dumps(values)).table_valued("value").c.value)
    return connection.execute(select(column.table).where(column.in_(wanted))).all()


def _checksum(table: Table, found: Iterable[Iterable[Any]]) -> int:
    return sum(row_checksum(table.name, row) for row in found)


def _update_state(
    connection: Connection, state: rows.ResultRow, changed: rows.Row, added_checksum: int
) -> None:
    """Write the position's row, and the checksum that follows from all that was changed."""
    before = state._asdict()
    checksum = before.pop("checksum") + added_checksum
    after = before | changed
    checksum -= row_checksum(journal_state.name, before.values())
    checksum += row_checksum(journal_state.name, after.values())
    after["checksum"] = checksum % CHECKSUM_MODULUS
    connection.execute(update(journal_state), after)

"""Questions to the key index, each in one read transaction: rows, and up to where they are true."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from seb_appliance import limits
from seb_appliance.broker.record_keys.key_index import IndexedTopic, KeyOffsets, KeyRow, KeyRows
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.topic_settings import KeyIndexMode
from seb_appliance.state.key_index_rows import (
    NO_PREVIOUS,
    checked_row,
    find,
    history_crc,
    key_row,
    topic_crc,
)

_PAGE: Final = """
SELECT key, offset, timestamp_us, tombstone, first, crc FROM latest
WHERE topic_id = ? AND key >= ? AND key < ? ORDER BY key
"""
_LIVE: Final = """
SELECT key, offset, timestamp_us, tombstone, first, crc
FROM latest INDEXED BY latest_by_offset
WHERE topic_id = ? AND offset >= ? AND offset < ? ORDER BY offset
"""
_KEPT: Final = """
SELECT offset FROM kept WHERE topic_id = ? AND offset >= ? AND offset < ? AND superseded_by >= ?
ORDER BY offset LIMIT ?
"""
_STEP: Final = "SELECT previous, first, crc FROM history WHERE topic_id = ? AND offset = ?"
_SCAN: Final = """
SELECT offset FROM history WHERE topic_id = ? AND offset < ? AND first = ?
ORDER BY offset DESC LIMIT 1
"""


def topics(connection: sqlite3.Connection) -> dict[int, IndexedTopic]:
    found = connection.execute("SELECT topic_id, mode, indexed_offset, crc FROM topics")
    return {topic_id: _checked(topic_id, *row) for topic_id, *row in found}


def topic(connection: sqlite3.Connection, topic_id: int) -> IndexedTopic | None:
    """None for a topic that is not indexed (yet)."""
    row = connection.execute(
        "SELECT mode, indexed_offset, crc FROM topics WHERE topic_id = ?", (topic_id,)
    ).fetchone()
    return None if row is None else _checked(topic_id, *row)


def _checked(topic_id: int, mode: KeyIndexMode, indexed_offset: int, crc: int) -> IndexedTopic:
    if topic_crc(topic_id, mode, indexed_offset) != crc:
        raise CorruptObjectError(f"the row of topic {topic_id} fails its checksum")
    return IndexedTopic(mode, indexed_offset)


def latest(connection: sqlite3.Connection, topic_id: int, key: bytes, log_start: int) -> KeyRows:
    found = find(connection, topic_id, key)
    live = found is not None and not found[2] and found[0] >= log_start
    rows = [key_row(key, found)] if found is not None and live else []
    return KeyRows(rows, _indexed_offset(connection, topic_id))


def page(
    connection: sqlite3.Connection,
    topic_id: int,
    prefix: bytes,
    after: bytes | None,
    most: int,
    log_start: int,
) -> KeyRows:
    begin = prefix if after is None or after < prefix else after + b"\0"
    rows = []
    for found in _live(topic_id, connection.execute(_PAGE, (topic_id, begin, _behind(prefix)))):
        if found.offset >= log_start:
            rows.append(found)
            if len(rows) == most:
                break
    return KeyRows(rows, _indexed_offset(connection, topic_id))


def _live(topic_id: int, found: Iterable[tuple[Any, ...]]) -> Iterator[KeyRow]:
    """Rows of `latest` that are no tombstones. SQL does not choose them: a row that is not what it
    was has to be found out, not left out."""
    for key, *row in found:
        newest = checked_row(topic_id, key, row)
        if not newest[2]:
            yield key_row(key, newest)


def _behind(prefix: bytes) -> bytes:
    """The least bytes behind all record keys that begin with `prefix`."""
    counted = prefix.rstrip(b"\xff")
    if not counted:
        return b"\xff" * (limits.RECORD_KEY_BYTES_MAX + 1)
    return counted[:-1] + bytes([counted[-1] + 1])


def live(
    connection: sqlite3.Connection, topic_id: int, as_of: int, begin: int, most: int
) -> KeyOffsets:
    found = _live(topic_id, connection.execute(_LIVE, (topic_id, begin, as_of)))
    offsets = [row.offset for row in islice(found, most)]
    kept = connection.execute(_KEPT, (topic_id, begin, as_of, as_of, most))
    offsets = sorted([*offsets, *(offset for (offset,) in kept)])[:most]
    return KeyOffsets(offsets, _indexed_offset(connection, topic_id))


def history(
    connection: sqlite3.Connection,
    topic_id: int,
    key: bytes,
    before: int | None,
    most: int,
    log_start: int,
) -> KeyOffsets:
    known = topic(connection, topic_id)
    if known is None or known.mode != "history":  # the setting has changed, and is followed soon
        return KeyOffsets([], 0)
    newest = find(connection, topic_id, key)
    if newest is None:
        return KeyOffsets([], known.indexed_offset)
    offset, first = newest[0], newest[3]
    if before is not None:
        offset = _below(connection, topic_id, offset, first, before)
    offsets: list[int] = []
    while offset >= log_start and offset != NO_PREVIOUS and len(offsets) < most:
        offsets.append(offset)
        offset = _previous(connection, topic_id, offset, first)
    return KeyOffsets(offsets, known.indexed_offset)


def _below(
    connection: sqlite3.Connection, topic_id: int, offset: int, first: int, before: int
) -> int:
    """The newest offset of the key below `before`; NO_PREVIOUS if there is none. A rare key has a
    short chain; the records of another are found soon by going through the offsets themselves."""
    row = connection.execute(_STEP, (topic_id, before)).fetchone()
    if row is not None and row[1] == first:
        return _previous(connection, topic_id, before, first)
    for _ in range(limits.KEY_HISTORY_LOOKED_AT):
        if offset < before:
            return offset
        offset = _previous(connection, topic_id, offset, first)
    row = connection.execute(_SCAN, (topic_id, before, first)).fetchone()
    return NO_PREVIOUS if row is None else int(row[0])


def _previous(connection: sqlite3.Connection, topic_id: int, offset: int, first: int) -> int:
    """The record of the key before the one at `offset`. What was trimmed ends the chain."""
    row = connection.execute(_STEP, (topic_id, offset)).fetchone()
    if row is None:
        return NO_PREVIOUS
    previous, of_key, crc = row
    if of_key != first or history_crc(topic_id, offset, previous, of_key) != crc:
        raise CorruptObjectError(f"the history at offset {offset} does not belong to its key")
    return int(previous)


def _indexed_offset(connection: sqlite3.Connection, topic_id: int) -> int:
    found = topic(connection, topic_id)
    return 0 if found is None else found.indexed_offset

"""The schema of keyindex.sqlite, its rows made from records, and queries.

Each row has a checksum, because SQLite does not detect a flipped bit in a blob.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.broker.record_keys.indexing import (
    IndexedTopic,
    IndexRange,
    KeyOffsets,
    KeyRow,
    KeyRows,
)
from seb_appliance.broker.values import BatchSlice
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.topic_settings import KeyIndexMode

VERSION: Final = 1
# latest: the newest record of each record key. `first`: the offset of the first one that was
# indexed, which names the key in `history`, a chain of each key's records from the newest back.
# kept: superseded records that a reader's view of an earlier offset still needs.
SCHEMA: Final = f"""
CREATE TABLE about (bucket_id BLOB NOT NULL) STRICT;
CREATE TABLE topics (
    topic_id INTEGER NOT NULL PRIMARY KEY,
    mode TEXT NOT NULL,
    indexed_offset INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
CREATE TABLE latest (
    topic_id INTEGER NOT NULL,
    key BLOB NOT NULL,
    offset INTEGER NOT NULL,
    timestamp_us INTEGER NOT NULL,
    tombstone INTEGER NOT NULL,
    first INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX latest_by_offset ON latest (topic_id, offset);
CREATE TABLE history (
    topic_id INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    first INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, offset)
) STRICT, WITHOUT ROWID;
CREATE TABLE kept (
    topic_id INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    superseded_by INTEGER NOT NULL,
    PRIMARY KEY (topic_id, offset)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
TABLES: Final = ("latest", "history", "kept")

NO_PREVIOUS: Final = -1
_UPSERT: Final = """
INSERT INTO latest VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (topic_id, key) DO UPDATE SET
    offset = excluded.offset, timestamp_us = excluded.timestamp_us,
    tombstone = excluded.tombstone, first = excluded.first, crc = excluded.crc
"""
_FIND: Final = """
SELECT offset, timestamp_us, tombstone, first, crc FROM latest WHERE topic_id = ? AND key = ?
"""
_LATEST: Final = struct.Struct("<qqq?q")
_HISTORY: Final = struct.Struct("<qqqq")

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

# Offset, timestamp, whether it is a tombstone, `first`.
Newest = tuple[int, int, bool, int]


def check_identity(connection: sqlite3.Connection, bucket_id: bytes) -> None:
    """Raises CorruptObjectError for a file of another version or bucket."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise CorruptObjectError(f"it has version {version}")
    if connection.execute("SELECT bucket_id FROM about").fetchall() != [(bucket_id,)]:
        raise CorruptObjectError("it belongs to another bucket")


def latest_crc(topic_id: int, key: bytes, newest: Newest) -> int:
    return crc32c(key, crc32c(_LATEST.pack(topic_id, *newest)))


def history_crc(topic_id: int, offset: int, previous: int, first: int) -> int:
    return crc32c(_HISTORY.pack(topic_id, offset, previous, first))


def topic_crc(topic_id: int, mode: str, indexed_offset: int) -> int:
    return crc32c(f"{topic_id} {mode} {indexed_offset}".encode())


def checked_row(topic_id: int, key: bytes, row: Sequence[int]) -> Newest:
    """A row of `latest` behind its key: offset, timestamp, tombstone, first, crc."""
    offset, timestamp_us, tombstone, first, crc = row
    newest = (offset, timestamp_us, bool(tombstone), first)
    if latest_crc(topic_id, key, newest) != crc:
        raise CorruptObjectError(f"the row of a record key (offset {offset}) fails its checksum")
    return newest


def find(connection: sqlite3.Connection, topic_id: int, key: bytes) -> Newest | None:
    """The newest record of a record key. Raises CorruptObjectError."""
    row = connection.execute(_FIND, (topic_id, key)).fetchone()
    return None if row is None else checked_row(topic_id, key, row)


def key_row(key: bytes, newest: Newest) -> KeyRow:
    return KeyRow(key, newest[0], newest[1])


# --- records become rows ---


def keyed(piece: BatchSlice) -> Iterator[tuple[bytes, int, int, bool]]:
    """(record key, offset, timestamp, whether it is a tombstone) of the records that have one."""
    columns, begin, end = piece.batch.columns, piece.begin, piece.end
    if columns.keys is None:
        return
    keys = columns.keys.slice(begin, end)
    offsets = piece.batch.offsets()
    timestamps, values = columns.timestamps_us, columns.values
    for i, key in enumerate(keys, begin):
        if key is not None:
            yield key, int(offsets[i]), timestamps[i], values.is_null(i)


def add_latest(connection: sqlite3.Connection, records: IndexRange, kept_below: int | None) -> None:
    """Add a range to a topic that keeps the latest record of each record key. A tombstone deletes
    the key's row."""
    topic_id = records.topic_id
    newest: dict[bytes, Newest] = {}
    first_of: dict[bytes, int] = {}
    for piece in records.slices:
        for key, offset, timestamp_us, tombstone in keyed(piece):
            newest[key] = (offset, timestamp_us, tombstone, 0)
            if kept_below is not None:
                first_of.setdefault(key, offset)
    if kept_below is not None:
        _keep(connection, topic_id, first_of, kept_below)
    connection.executemany(
        "DELETE FROM latest WHERE topic_id = ? AND key = ?",
        ((topic_id, key) for key, (_, _, tombstone, _) in newest.items() if tombstone),
    )
    _upsert(connection, topic_id, {key: found for key, found in newest.items() if not found[2]})


def add_history(
    connection: sqlite3.Connection, records: IndexRange, kept_below: int | None
) -> None:
    """Add a range to a topic that keeps every record of each record key."""
    topic_id = records.topic_id
    newest: dict[bytes, Newest] = {}
    first_of: dict[bytes, int] = {}

    def rows() -> Iterator[tuple[int, int, int, int, int]]:
        for piece in records.slices:
            for key, offset, timestamp_us, tombstone in keyed(piece):
                known = newest.get(key) or find(connection, topic_id, key)
                previous, first = (NO_PREVIOUS, offset) if known is None else (known[0], known[3])
                newest[key] = (offset, timestamp_us, tombstone, first)
                first_of.setdefault(key, offset)
                crc = history_crc(topic_id, offset, previous, first)
                yield topic_id, offset, previous, first, crc

    connection.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?)", rows())
    if kept_below is not None:
        _keep(connection, topic_id, first_of, kept_below)
    _upsert(connection, topic_id, newest)


def _upsert(connection: sqlite3.Connection, topic_id: int, newest: dict[bytes, Newest]) -> None:
    # In the order of the tree. Rows are made one at a time: SQLite lets others run between two.
    connection.executemany(
        _UPSERT,
        (
            (topic_id, key, *found, latest_crc(topic_id, key, found))
            for key, found in sorted(newest.items())
        ),
    )


def _keep(
    connection: sqlite3.Connection, topic_id: int, first_of: dict[bytes, int], kept_below: int
) -> None:
    """Keep the records that this range supersedes, by the first record of their key in it."""

    def rows() -> Iterator[tuple[int, int, int]]:
        for key, superseded_by in first_of.items():
            known = find(connection, topic_id, key)
            if known is not None and known[0] < kept_below and not known[2]:
                yield topic_id, known[0], superseded_by

    connection.executemany("INSERT INTO kept VALUES (?, ?, ?)", rows())


# --- queries: rows, and the offset up to which they are complete; each in one transaction ---


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
    rows, size_bytes = [], 0
    for found in _live(topic_id, connection.execute(_PAGE, (topic_id, begin, _after(prefix)))):
        if found.offset >= log_start:
            rows.append(found)
            size_bytes += len(found.key)
            if len(rows) == most or size_bytes > limits.KEYS_PAGE_BYTES:
                break
    return KeyRows(rows, _indexed_offset(connection, topic_id))


def _live(topic_id: int, found: Iterable[tuple[Any, ...]]) -> Iterator[KeyRow]:
    """Rows of `latest` that are not tombstones. SQL does not filter them, so that a damaged row is
    detected and not skipped."""
    for key, *row in found:
        newest = checked_row(topic_id, key, row)
        if not newest[2]:
            yield key_row(key, newest)


def _after(prefix: bytes) -> bytes:
    """The smallest bytes after all record keys that begin with `prefix`."""
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
    if known is None or known.mode != "history":  # the setting has changed; the index follows soon
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
    """The newest offset of the key below `before`; NO_PREVIOUS if there is none. The chain of a
    rare key is short; the records of a frequent key are found quickly by a scan of the offsets."""
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
    """The record of the key before the one at `offset`. A trimmed record ends the chain."""
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

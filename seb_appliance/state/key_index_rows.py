"""Rows of the key index: the schema of keyindex.sqlite, and how records become rows.

Each row has a checksum of its own: SQLite does not see a flipped bit in a blob.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from crc32c import crc32c

from seb_appliance.broker.record_keys.key_index import IndexRange, KeyRow
from seb_appliance.broker.values import BatchSlice
from seb_appliance.errors import CorruptObjectError

VERSION: Final = 1
# latest: the newest record of each record key. `first`: the offset of the first one that was
# indexed, which names the key in `history`, a chain of each key's records from the newest back.
# kept: records that were the newest as of an offset that somebody still pages through.
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

# Offset, timestamp, whether it is a tombstone, `first`.
Newest = tuple[int, int, bool, int]


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
    """Take a range into a topic that keeps the latest record of each record key: a tombstone ends
    its row."""
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
    # In the order of the tree. One row at a time is made: SQLite lets others run between two.
    connection.executemany(
        _UPSERT,
        (
            (topic_id, key, *found, latest_crc(topic_id, key, found))
            for key, found in sorted(newest.items())
            if not found[2]
        ),
    )


def add_history(
    connection: sqlite3.Connection, records: IndexRange, kept_below: int | None
) -> None:
    """Take a range into a topic that keeps every record of each record key."""
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
    """Keep the records that are superseded now, by the one at `first_of` their key."""

    def rows() -> Iterator[tuple[int, int, int]]:
        for key, superseded_by in first_of.items():
            known = find(connection, topic_id, key)
            if known is not None and known[0] < kept_below and not known[2]:
                yield topic_id, known[0], superseded_by

    connection.executemany("INSERT INTO kept VALUES (?, ?, ?)", rows())

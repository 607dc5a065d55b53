"""keyindex.sqlite: an index of the log by record key, which can be rebuilt from the log.

One thread holds the connection that writes and checkpoints; two others read. A row that fails a
check is never returned: the broker then rebuilds the file.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from seb_appliance import limits
from seb_appliance.broker.record_keys.indexing import IndexedTopic, IndexRange
from seb_appliance.errors import CorruptObjectError
from seb_appliance.state import files
from seb_appliance.state.files import sqlite_errors
from seb_appliance.state.record_keys import rows

P = ParamSpec("P")
T = TypeVar("T")

_READERS: Final = 2
_WRITER_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    # A power cut may take the last transactions, never the file's consistency.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -32768",
)
_PRAGMAS: Final = ("PRAGMA busy_timeout = 5000", "PRAGMA trusted_schema = OFF")


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _put_topic(connection: sqlite3.Connection, topic_id: int, topic: IndexedTopic) -> None:
    crc = rows.topic_crc(topic_id, topic.mode, topic.indexed_offset)
    connection.execute(
        "INSERT OR REPLACE INTO topics VALUES (?, ?, ?, ?)",
        (topic_id, topic.mode, topic.indexed_offset, crc),
    )


def _forget(connection: sqlite3.Connection, topic_id: int) -> None:
    for table in ("topics", *rows.TABLES):
        connection.execute(f"DELETE FROM {table} WHERE topic_id = ?", (topic_id,))  # noqa: S608


def _trim(connection: sqlite3.Connection, table: str, topic_id: int, log_start: int) -> bool:
    """Delete some of a topic's rows below a log start offset; whether these were the last."""
    below = f"FROM {table} WHERE topic_id = ? AND offset < ?"  # our own names
    bounds = connection.execute(
        f"SELECT offset {below} ORDER BY offset LIMIT 1 OFFSET ?",
        (topic_id, log_start, limits.KEY_INDEX_TRIM_ROWS),
    ).fetchone()
    until = log_start if bounds is None else bounds[0]
    connection.execute(f"DELETE {below}", (topic_id, until))
    return bounds is None


def _add(
    connection: sqlite3.Connection, ranges: Sequence[IndexRange], kept_below: Mapping[int, int]
) -> None:
    for records in ranges:
        topic = rows.topic(connection, records.topic_id)
        assert topic is not None, records.topic_id
        assert records.offset == topic.indexed_offset, (records.offset, topic)
        add = rows.add_history if topic.mode == "history" else rows.add_latest
        add(connection, records, kept_below.get(records.topic_id))
        _put_topic(connection, records.topic_id, IndexedTopic(topic.mode, records.next_offset))


def _begin(connection: sqlite3.Connection, topic_id: int, topic: IndexedTopic) -> None:
    _forget(connection, topic_id)
    _put_topic(connection, topic_id, topic)


def _forget_kept(connection: sqlite3.Connection, topic_id: int) -> None:
    connection.execute("DELETE FROM kept WHERE topic_id = ?", (topic_id,))


def _changes(
    work: Callable[Concatenate[sqlite3.Connection, P], T],
) -> Callable[Concatenate[SqliteKeyIndex, P], Coroutine[Any, Any, T]]:
    """A method that does `work` in a transaction of the writing connection."""

    async def method(self: SqliteKeyIndex, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def changing() -> T:
            assert self._connection is not None
            with sqlite_errors(self._path), _transaction(self._connection, "BEGIN IMMEDIATE"):
                return work(self._connection, *args, **kwargs)

        return await self._write(changing)

    return method


def _reads(
    work: Callable[Concatenate[sqlite3.Connection, P], T],
) -> Callable[Concatenate[SqliteKeyIndex, P], Coroutine[Any, Any, T]]:
    """A method that does `work` in a read transaction."""

    async def method(self: SqliteKeyIndex, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def reading() -> T:
            with sqlite_errors(self._path):
                while True:
                    number = self._number
                    connection = self._reader(number)
                    with _transaction(connection, "BEGIN"):
                        answer = work(connection, *args, **kwargs)
                    if number == self._number:
                        return answer

        return await asyncio.get_running_loop().run_in_executor(self._readers, reading)

    return method


class SqliteKeyIndex:
    """See `broker.record_keys.indexing.KeyIndex`. Call `close` after the last query."""

    def __init__(self, path: Path, bucket_id: bytes) -> None:
        """For `open` only."""
        self._path = path
        self._bucket_id = bucket_id
        self._connection: sqlite3.Connection | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="key-index")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="key-index-reader")
        # Readers reopen when a new file has replaced the one they read.
        self._number = 0
        self._of_thread = threading.local()
        self._open_readers: list[sqlite3.Connection] = []

    @classmethod
    async def open(cls, path: Path, bucket_id: bytes, *, trusted: bool) -> SqliteKeyIndex:
        """Open the index of this bucket in the file `path`. It is replaced by an empty one if it is
        missing, damaged, of another bucket, or not `trusted`. Raises ConfigurationError."""
        index = cls(path, bucket_id)
        if not trusted:
            await index._write(index._make)
            return index
        try:
            await index._write(index._take_up)
        except CorruptObjectError:
            await index.clear()
        return index

    async def close(self) -> None:
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._open_readers:
            connection.close()
        if self._connection is not None:
            await self._write(self._connection.close)
        await asyncio.to_thread(self._writer.shutdown)

    @property
    def size_bytes(self) -> int:
        sizes = (self._path.with_name(self._path.name + end) for end in ("", "-wal"))
        return sum(file.stat().st_size for file in sizes if file.exists())

    # --- KeyIndex: what writes ---

    async def load(self) -> dict[int, IndexedTopic]:
        return await self._write(self._load)

    async def clear(self) -> None:
        await self._write(self._make)

    begin = _changes(_begin)
    drop = _changes(_forget)
    add = _changes(_add)
    forget_kept = _changes(_forget_kept)
    _trim_some = _changes(_trim)

    async def trim(self, topic_id: int, log_start: int) -> None:
        # Some rows in a transaction, so that additions and readers do not wait long.
        for table in rows.TABLES:
            while not await self._trim_some(table, topic_id, log_start):
                pass

    # --- KeyIndex: what reads ---

    latest = _reads(rows.latest)
    page = _reads(rows.page)
    history = _reads(rows.history)
    live = _reads(rows.live)

    # --- threads ---

    async def _write(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, lambda: work(*args, **kwargs))

    def _reader(self, number: int) -> sqlite3.Connection:
        """This thread's connection to file `number`; it can neither write nor checkpoint."""
        known: sqlite3.Connection | None = getattr(self._of_thread, "connection", None)
        if known is not None and self._of_thread.number == number:
            return known
        if known is not None:
            self._open_readers.remove(known)
            known.close()
            self._of_thread.connection = None
        connection = files.read_only(self._path, isolation_level=None, check_same_thread=False)
        self._open_readers.append(connection)
        connection.execute("PRAGMA trusted_schema = OFF")
        self._of_thread.connection, self._of_thread.number = connection, number
        return connection

    # --- the file; only on the writer's thread ---

    def _make(self) -> None:
        """Make an empty index, which replaces an existing file."""
        with sqlite_errors(self._path):
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            files.create_private(self._path)
            self._connection = _connect(self._path)
            self._connection.executescript(rows.SCHEMA)
            self._connection.execute("INSERT INTO about VALUES (?)", (self._bucket_id,))
            self._number += 1

    def _take_up(self) -> None:
        """Open the existing file. Raises CorruptObjectError unless it is of this bucket."""
        if not self._path.exists():
            raise CorruptObjectError("there is no key index")
        with sqlite_errors(self._path):
            connection = self._connection = _connect(self._path)
            rows.check_identity(connection, self._bucket_id)
            # No reader from before the start pages through a view any more.
            connection.execute("DELETE FROM kept")

    def _load(self) -> dict[int, IndexedTopic]:
        assert self._connection is not None
        with sqlite_errors(self._path):
            files.check_pages(self._connection)
            return rows.topics(self._connection)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in (*_PRAGMAS, *_WRITER_PRAGMAS):
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection

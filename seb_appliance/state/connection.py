"""How the state file is opened: the settings of each connection and what begins a transaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from seb_appliance.errors import ConfigurationError
from seb_appliance.state.digest import row_checksum

# An SQL function: the checksum of the row of the named table whose columns follow. What many rows
# add up to is so worked out in SQLite's thread, and not on the event loop.
ROW_CHECKSUM: Final = "row_checksum"

# NORMAL: a commit does not wait for the disk. A power cut may take the last transactions, never the
# file's consistency, and what it takes is replayed from the journal. trusted_schema: a file that
# came from elsewhere must not make us run anything.
_PRAGMAS: Final = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA busy_timeout = 5000",
    "PRAGMA trusted_schema = OFF",
)


def writer_engine(path: Path) -> AsyncEngine:
    """The engine of the one connection that writes and checkpoints."""
    engine = create_async_engine(_url("sqlite+aiosqlite", path), pool_size=1, max_overflow=0)
    _listen(engine.sync_engine)
    return engine


def short_lived_engine(path: Path) -> Engine:
    """A blocking engine, for making and migrating a file that no other connection has open."""
    engine = create_engine(_url("sqlite", path), pool_size=1, max_overflow=0)
    _listen(engine)
    return engine


def _url(driver: str, path: Path) -> URL:
    return URL.create(driver, database=str(path))


def _listen(engine: Engine) -> None:
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)


def _prepare(dbapi_connection: Any, _record: object) -> None:
    # Else sqlite3 begins transactions by rules of its own, and not before DDL.
    dbapi_connection.isolation_level = None
    dbapi_connection.create_function(ROW_CHECKSUM, -1, _row_checksum, deterministic=True)
    cursor = dbapi_connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    (mode,) = cursor.fetchone()
    if mode != "wal":
        raise ConfigurationError(
            f"SQLite cannot keep a write-ahead log in the data directory (it offers {mode!r}):"
            " take a directory on a local disk"
        )
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _row_checksum(table: str, *row: Any) -> int:
    return row_checksum(table, row)


def _begin(connection: Connection) -> None:
    # IMMEDIATE: a transaction that reads first could not become a writer otherwise.
    connection.exec_driver_sql("BEGIN IMMEDIATE")

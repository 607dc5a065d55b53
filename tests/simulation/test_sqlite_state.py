"""What a simulated machine's SQLite files hold after a kill, and after a power failure."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.simulation.sqlite_state import KnownEntries, SqliteDisk


@pytest.fixture
def disk(tmp_path: Path) -> SqliteDisk:
    return SqliteDisk(tmp_path, KnownEntries())


@pytest.fixture
def writer(disk: SqliteDisk) -> Iterator[sqlite3.Connection]:
    """As a process has it, which is going to be killed."""
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (n INTEGER)")
        yield connection


def numbers(disk: SqliteDisk) -> list[int]:
    with closing(sqlite3.connect(disk.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [n for (n,) in connection.execute("SELECT n FROM t ORDER BY n")]


def insert(writer: sqlite3.Connection, *several: int) -> None:
    for number in several:
        writer.execute("INSERT INTO t VALUES (?)", (number,))


def test_a_kill_leaves_what_was_committed(disk: SqliteDisk, writer: sqlite3.Connection) -> None:
    insert(writer, 1, 2)
    writer.execute("BEGIN IMMEDIATE")
    insert(writer, 3)
    disk.killed()
    writer.execute("COMMIT")  # nobody does, who is dead
    assert numbers(disk) == [1, 2]


def test_a_power_failure_takes_the_newest_transactions(
    disk: SqliteDisk, writer: sqlite3.Connection
) -> None:
    insert(writer, 1, 2, 3, 4)
    disk.killed()
    disk.set_back(2)
    assert numbers(disk) == [1, 2]


def test_a_power_failure_takes_nothing_that_a_checkpoint_has_stored(
    disk: SqliteDisk, writer: sqlite3.Connection
) -> None:
    insert(writer, 1, 2, 3)
    writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
    disk.killed()
    disk.set_back(1)
    assert numbers(disk) == [1, 2, 3]


def test_a_power_failure_takes_what_came_after_a_checkpoint(
    disk: SqliteDisk, writer: sqlite3.Connection
) -> None:
    insert(writer, 1, 2, 3)
    writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
    insert(writer, 4, 5)  # at the beginning of the write-ahead log again
    disk.killed()
    disk.set_back(19)
    assert numbers(disk) == [1, 2, 3]


def test_another_disk_is_empty(disk: SqliteDisk, writer: sqlite3.Connection) -> None:
    insert(writer, 1)
    disk.killed()
    disk.lose()
    assert not disk.path.exists()
    assert disk.entries == []

"""Whether a state file can be trusted: its own position, rows and shape, and nothing foreign.

A file is trusted whole or not at all. What fails here is moved aside (database.py) and had again
from the bucket.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from sqlalchemy import create_engine

from seb_appliance.errors import CorruptObjectError
from seb_appliance.state import files, migrate
from seb_appliance.state.digest import rows_checksum
from seb_appliance.state.failures import told_of
from seb_appliance.state.schema import create

_HEADER_BYTES: Final = 20
_MAGIC: Final = b"SQLite format 3\0"
_FORMATS: Final = (b"\1\1", b"\2\2")  # write and read version: rollback journal, or WAL

Shape: TypeAlias = set[tuple[object, ...]]


def prepare(path: Path, *, keep_older: bool = False) -> None:
    """Check the state file `path`, which nobody has open, and bring it to the newest revision.

    With `keep_older`, one of an older revision is kept beside it as it was, for the release that
    wrote it: `<name>.revision-<revision>`.
    Raises CorruptObjectError if it cannot be trusted; ConfigurationError if a newer release wrote
    it, or if the machine does not let us read it.
    """
    with told_of(path):
        _check_header(path)
        with closing(sqlite3.connect(path)) as connection:
            revision = read_checked_revision(connection)
        if migrate.needs_upgrade(revision):
            if keep_older:
                files.keep_revision(path, revision)
            migrate.upgrade(path)
        with closing(sqlite3.connect(path)) as connection:
            _check_shape(connection)


def _check_header(path: Path) -> None:
    """SQLite would take an empty file for a new one, and a flipped format version for a file that
    is read-only: both are damage here."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if header[:16] != _MAGIC or header[18:20] not in _FORMATS:
        raise CorruptObjectError("it does not begin like an SQLite file")


def read_checked_revision(connection: sqlite3.Connection) -> str:
    """The revision, once the pages, the rows and the position have been found sound."""
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    strange = connection.execute(
        "SELECT type, name FROM sqlite_schema"
        " WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'"
    ).fetchone()
    if strange:
        raise CorruptObjectError(f"its schema holds a {strange[0]} {strange[1]!r}")
    # quick_check and more: it compares the indexes with their tables too.
    problems = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if problems != [("ok",)]:
        raise CorruptObjectError(f"its pages do not agree: {problems[0][0]}")
    revisions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    states = connection.execute("SELECT checksum FROM journal_state").fetchall()
    if len(revisions) != 1 or len(states) != 1:
        raise CorruptObjectError("it has no position in the journal")
    if rows_checksum(connection) != states[0][0]:
        raise CorruptObjectError("its rows do not add up to their checksum")
    return str(revisions[0][0])


def _check_shape(connection: sqlite3.Connection) -> None:
    found, wanted = _shape(connection), _wanted_shape()
    if found != wanted:
        differing = sorted(str(item[:2]) for item in found ^ wanted)
        raise CorruptObjectError(f"its schema differs from ours: {', '.join(differing)}")


def _shape(connection: sqlite3.Connection) -> Shape:
    """Tables and their kind, indexes, columns; not the wording of the SQL that made them, which may
    differ between a migrated and a new file."""
    objects = connection.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall()
    kinds = "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main'"
    shape: Shape = {*objects, *connection.execute(kinds)}
    for kind, table, _ in objects:
        if kind == "table":
            columns = connection.execute("SELECT * FROM pragma_table_xinfo(?)", (table,))
            shape.update((table, *column) for column in columns)
    return shape


@cache
def _wanted_shape() -> Shape:
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            create(connection)
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            return _shape(raw)
    finally:
        engine.dispose()

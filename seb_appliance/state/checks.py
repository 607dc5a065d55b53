"""Checks a state file (its position, rows and schema), and migrates it.

A file that fails any check is moved aside (database.py) and rebuilt from the bucket. SQLAlchemy
and Alembic take 0.3 s and 30 MB, so they are imported only for a file of an older release.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from seb_appliance.bundled import bundled
from seb_appliance.errors import CorruptObjectError, NewerReleaseError
from seb_appliance.state import files
from seb_appliance.state.schema import NEWEST_REVISION, create, set_up
from seb_appliance.state.tables import rows_checksum

_HEADER_BYTES: Final = 20
_MAGIC: Final = b"SQLite format 3\0"
_FORMATS: Final = (b"\1\1", b"\2\2")  # write and read version: rollback journal, or WAL
_REVISION: Final = re.compile(r"[0-9]{4}")

Shape: TypeAlias = set[tuple[object, ...]]


def prepare(path: Path, *, keep_older: bool = False) -> None:
    """Check the closed state file `path`, and migrate it to the newest revision.

    With `keep_older`, a copy of an older file is kept for the release that wrote it:
    `<name>.revision-<revision>`. Raises CorruptObjectError if the file cannot be trusted;
    ConfigurationError if a newer release wrote it, or if the machine does not let us read it.
    """
    with files.sqlite_errors(path):
        # SQLite takes an empty file for a new one, and a flipped format version for a read-only
        # file: both are damage here.
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if header[:16] != _MAGIC or header[18:20] not in _FORMATS:
            raise CorruptObjectError("it is not an SQLite file")
        with closing(sqlite3.connect(path)) as connection:
            revision = read_checked_revision(connection)
        if needs_upgrade(revision):
            if keep_older:
                files.keep_revision(path, revision)
            upgrade(path)
        with closing(sqlite3.connect(path)) as connection:
            _check_shape(connection)


def read_checked_revision(connection: sqlite3.Connection) -> str:
    """The revision of a file whose pages, rows and position are sound."""
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    strange = connection.execute(
        "SELECT type, name FROM sqlite_schema WHERE type NOT IN ('table', 'index')"
        " UNION ALL SELECT type || ' table', name FROM pragma_table_list"
        " WHERE schema = 'main' AND type <> 'table'"
    ).fetchone()
    if strange:
        raise CorruptObjectError(f"its schema has an unknown {strange[0]} {strange[1]!r}")
    files.check_pages(connection)
    revisions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    states = connection.execute("SELECT checksum FROM journal_state").fetchall()
    if len(revisions) != 1 or len(states) != 1:
        raise CorruptObjectError("it has no position in the journal")
    if rows_checksum(connection) != states[0][0]:
        raise CorruptObjectError("the checksum of its rows is wrong")
    return str(revisions[0][0])


def _check_shape(connection: sqlite3.Connection) -> None:
    found, wanted = _shape(connection), _expected_shape()
    if found != wanted:
        differing = sorted(str(item[:2]) for item in found ^ wanted)
        raise CorruptObjectError(f"its schema differs from ours: {', '.join(differing)}")


def _shape(connection: sqlite3.Connection) -> Shape:
    """Tables and their kind, indexes, columns; not the wording of the SQL, which may differ between
    a migrated and a new file."""
    objects = connection.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall()
    kinds = "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main'"
    shape: Shape = {*objects, *connection.execute(kinds)}
    for kind, table, _ in objects:
        if kind == "table":
            columns = connection.execute("SELECT * FROM pragma_table_xinfo(?)", (table,))
            shape.update((table, *column) for column in columns)
    return shape


@cache
def _expected_shape() -> Shape:
    with closing(sqlite3.connect(":memory:")) as connection:
        create(connection)
        return _shape(connection)


# --- migration ---


def needs_upgrade(revision: str) -> bool:
    """Whether a file of this revision is older than this release.

    Raises NewerReleaseError for one of a newer release, CorruptObjectError for an invalid revision.
    """
    if not _REVISION.fullmatch(revision):
        raise CorruptObjectError(f"the state has a revision {revision!r}")
    if revision > NEWEST_REVISION:
        raise NewerReleaseError(
            f"a newer release wrote the state (revision {revision}, this one knows"
            f" {NEWEST_REVISION})"
        )
    return revision < NEWEST_REVISION


def upgrade(path: Path, *, to: str = "head", migrations: Path | None = None) -> None:
    """Migrate the file to revision `to`. Each migration is done completely or not at all.

    A kill before the checksum is set leaves a file that counts as damaged: it is rebuilt.
    """
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import URL, create_engine, event
    from sqlalchemy.exc import DBAPIError

    config = Config()
    folder = str(migrations or bundled("migrations"))
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    engine = create_engine(URL.create("sqlite", database=str(path)), pool_size=1, max_overflow=0)
    event.listen(engine, "connect", lambda connection, _: set_up(connection))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, to)
            connection.commit()
    except DBAPIError as error:
        raise error.orig or error from error
    finally:
        engine.dispose()
    # A migration changes rows without the checksum.
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE journal_state SET checksum = ?", (rows_checksum(file),))

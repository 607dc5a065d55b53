"""State files of earlier revisions, as the releases of their time would have written them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from seb_appliance.state import checks
from seb_appliance.state.schema import NEWEST_REVISION

REVISIONS = tuple(f"{number:04}" for number in range(1, int(NEWEST_REVISION) + 1))


def write_as_of(revision: str, newest: Path, path: Path) -> None:
    """What `newest` holds, in a file `path` of an older revision; what that one has no place for
    is left out."""
    sqlite3.connect(path).close()
    checks.upgrade(path, to=revision)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ATTACH ? AS newest", (str(newest),))
        tables = connection.execute(
            "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name != 'alembic_version'"
        )
        for (table,) in tables.fetchall():
            columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            listed = ", ".join(name for (name,) in columns)
            connection.execute(
                f"INSERT OR REPLACE INTO main.{table} SELECT {listed} FROM newest.{table}"
            )
        if revision == "0001":  # a grant had no pattern for groups then
            connection.execute(
                """UPDATE api_keys SET grants = replace(grants, ',"groups":"**"', '')"""
            )
    checks.upgrade(path, to=revision)  # sets the checksum of these rows

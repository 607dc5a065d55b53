"""A state file against one that is projected anew, from all entries, in another division of them.

Snapshots, kills, replays from the middle and migrations have made the one; nothing but the log has
made the other. Row for row they are the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from seb_appliance.formats.entry import Entry
from seb_appliance.state import schema
from seb_appliance.state.projection import project

Tables = dict[str, list[tuple[Any, ...]]]


def project_anew(path: Path, entries: Sequence[Entry]) -> None:
    """Go on with the file at `path`, or make it."""
    if not path.exists():
        schema.make(path)
    with closing(schema.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        project(connection, entries)
        connection.execute("COMMIT")


def differences(found: Path, anew: Path) -> list[str]:
    """Sentences, one for each table that differs."""
    ours, of_log = _tables(found), _tables(anew)
    return [
        f"P14 table {name}: {ours.get(name)} is there, and the log makes {of_log.get(name)}"
        for name in sorted(ours.keys() | of_log.keys())
        if ours.get(name) != of_log.get(name)
    ]


def _tables(path: Path) -> Tables:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for (name,) in names
        }

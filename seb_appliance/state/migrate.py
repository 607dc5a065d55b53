"""Bringing an older state file to the newest revision, by Alembic.

Alembic takes 11 MB of memory, so it is imported only when there is something to migrate: a new file
is made from schema.py.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from seb_appliance.bundled import bundled
from seb_appliance.errors import CorruptObjectError, NewerReleaseError
from seb_appliance.state.connection import short_lived_engine
from seb_appliance.state.digest import rows_checksum
from seb_appliance.state.schema import NEWEST_REVISION, create

_REVISION: Final = re.compile(r"[0-9]{4}")


def make(path: Path) -> None:
    """Make the state file `path` (absent or empty before) at ORIGIN and the newest revision."""
    engine = short_lived_engine(path)
    try:
        with engine.begin() as connection:
            create(connection)
    finally:
        engine.dispose()


def needs_upgrade(revision: str) -> bool:
    """Whether a file of this revision is older than this release.

    Raises NewerReleaseError for one of a newer release, CorruptObjectError for nonsense.
    """
    if not _REVISION.fullmatch(revision):
        raise CorruptObjectError(f"the state has a revision {revision!r}")
    if revision > NEWEST_REVISION:
        raise NewerReleaseError(
            f"the state was written by a newer release (revision {revision}, this one knows"
            f" {NEWEST_REVISION}): install that release again, or move the state file away; it is"
            " rebuilt from the bucket"
        )
    return revision < NEWEST_REVISION


def upgrade(path: Path, *, to: str = "head", migrations: Path | None = None) -> None:
    """Migrate the file to revision `to`. Each migration is done whole or not at all.

    A kill before the checksum is set leaves a file that counts as damaged: it is rebuilt.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = str(migrations or bundled("migrations"))
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    engine = short_lived_engine(path)
    try:
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, to)
            connection.commit()
    finally:
        engine.dispose()
    _seal(path)


def _seal(path: Path) -> None:
    """Set the checksum anew: a migration changes rows without it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        checksum = rows_checksum(connection)
        connection.execute("UPDATE journal_state SET checksum = ?", (checksum,))

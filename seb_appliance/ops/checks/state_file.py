"""A state file as it lies there: sound or not, and what it amounts to."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seb_appliance.formats.entry import Position
from seb_appliance.state import checks
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.tables import state_digest


@dataclass(frozen=True, slots=True)
class StateFile:
    """`digest`: None for the file of an older release: what a replay gives today may have more."""

    position: Position
    bucket_id: bytes | None
    digest: str | None


async def read_state(path: Path) -> StateFile:
    """Check the file at `path`, a copy of ours that may be migrated. Raises CorruptObjectError."""
    is_older = await asyncio.to_thread(_is_older, path)
    await StateDatabase.check(path)
    database = await StateDatabase.open(path)
    try:
        position, bucket_id = await database.position(), await database.bucket_id()
    finally:
        await database.close()
    digest = None if is_older else await asyncio.to_thread(state_digest, path)
    return StateFile(position, bucket_id, digest)


def _is_older(path: Path) -> bool:
    """False for what is no state file: the check tells."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return checks.needs_upgrade(revision)
    except (sqlite3.Error, TypeError):
        return False

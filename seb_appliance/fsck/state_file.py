"""A state file as it lies there: sound or not, and what it amounts to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from seb_appliance.formats.entry import Position
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.digest import state_digest


@dataclass(frozen=True, slots=True)
class StateFile:
    position: Position
    bucket_id: bytes | None
    digest: str


async def read_state(path: Path) -> StateFile:
    """Check the file at `path`, a copy of ours that may be migrated. Raises CorruptObjectError."""
    await StateDatabase.check(path)
    database = await StateDatabase.open(path)
    try:
        position, bucket_id = await database.position(), await database.bucket_id()
    finally:
        await database.close()
    return StateFile(position, bucket_id, await asyncio.to_thread(state_digest, path))

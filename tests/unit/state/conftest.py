"""A state file of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance.state.database import StateDatabase


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "local" / "state.sqlite"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[StateDatabase]:
    database = await StateDatabase.open(path)
    yield database
    await database.close()

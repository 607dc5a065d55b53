"""local.sqlite: what this machine keeps for itself and no journal holds. It may be lost.

A file that cannot be read is replaced by an empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import aiosqlite

from seb_appliance.errors import CorruptObjectError
from seb_appliance.state import files
from seb_appliance.state.files import sqlite_errors

_T = TypeVar("_T")

# What makes each version of the one before; the first makes version 1 of an empty file.
_STEPS: Final = (
    """
CREATE TABLE last_used (
    api_key_id TEXT NOT NULL PRIMARY KEY,
    used_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
""",
    """
CREATE TABLE documents (
    name TEXT NOT NULL PRIMARY KEY,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
""",
    """
DELETE FROM documents WHERE name = 'samples';
CREATE TABLE samples (
    step_s INTEGER NOT NULL,
    place INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (step_s, place)
) STRICT, WITHOUT ROWID;
""",
)


class LocalFile:
    """Every method raises ConfigurationError if the machine refuses access to the file; the methods
    that save also raise CorruptObjectError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load_last_used(self, api_key_ids: Collection[str]) -> dict[str, int]:
        """µs since the epoch, by API key id. Others than these are deleted."""

        async def load() -> dict[str, int]:
            async with self._opened() as connection:
                rows = await connection.execute_fetchall(
                    "SELECT api_key_id, used_us FROM last_used"
                )
                found: dict[str, int] = dict(rows)  # type: ignore[arg-type]
                gone = [(api_key_id,) for api_key_id in found.keys() - set(api_key_ids)]
                await connection.executemany("DELETE FROM last_used WHERE api_key_id = ?", gone)
                return {known: used_us for known, used_us in found.items() if known in api_key_ids}

        return await self._anew_if_damaged(load)

    async def save_last_used(self, used_us: Mapping[str, int]) -> None:
        """Replace the times of these keys."""
        async with self._opened() as connection:
            await connection.executemany(
                "INSERT OR REPLACE INTO last_used VALUES (?, ?)", used_us.items()
            )

    async def load_document(self, name: str) -> bytes | None:
        """The document that was saved last."""

        async def load() -> bytes | None:
            async with self._opened() as connection:
                statement = "SELECT body FROM documents WHERE name = ?"
                found = list(await connection.execute_fetchall(statement, (name,)))
            return bytes(found[0][0]) if found else None

        return await self._anew_if_damaged(load)

    async def save_document(self, name: str, body: bytes) -> None:
        """Replace a document."""
        async with self._opened() as connection:
            await connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", (name, body))

    async def load_samples(self) -> list[tuple[int, int, bytes]]:
        """Step, place and body of each."""

        async def load() -> list[tuple[int, int, bytes]]:
            async with self._opened() as connection:
                statement = "SELECT step_s, place, body FROM samples"
                return list(await connection.execute_fetchall(statement))  # type: ignore[arg-type]

        return await self._anew_if_damaged(load)

    async def save_samples(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Replace the samples at these places."""
        async with self._opened() as connection:
            await connection.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", rows)

    async def _anew_if_damaged(self, load: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await load()
        except CorruptObjectError:
            with sqlite_errors(self._path):
                await asyncio.to_thread(files.create_private, self._path)
            return await load()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[aiosqlite.Connection]:
        """A connection in a transaction, which is committed at the end; the file is made if it is
        missing."""
        with sqlite_errors(self._path):
            if not await asyncio.to_thread(self._path.exists):
                await asyncio.to_thread(files.create_private, self._path)
            async with aiosqlite.connect(self._path) as connection:
                ((version,),) = await connection.execute_fetchall("PRAGMA user_version")
                if version > len(_STEPS):
                    raise CorruptObjectError(f"it is of version {version}")
                for number, step in enumerate(_STEPS[version:], version + 1):
                    whole = f"BEGIN; {step} PRAGMA user_version = {number}; COMMIT;"
                    await connection.executescript(whole)
                yield connection
                await connection.commit()

"""Looking into the state file while it is written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from seb_appliance.state.files import read_only, sqlite_errors
from seb_appliance.state.tables import Row

P = ParamSpec("P")
T = TypeVar("T")


class RowReader:
    """A read-only connection in a thread of its own: a lookup waits for no transaction. It sees
    what is committed."""

    def __init__(self, path: Path, name: str) -> None:
        """`name`: of the thread."""
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None

    async def rows(self, query: str, *parameters: int) -> list[Row]:
        """Raises CorruptObjectError, ConfigurationError."""
        return await self._run(self._fetch, query, *parameters)

    async def disconnect(self) -> None:
        """Let go of the file until the next lookup."""
        await self._run(self._disconnect)

    async def close(self) -> None:
        """Close it; no look-ups are possible afterwards."""
        await self.disconnect()
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[P, T], *arguments: P.args, **_: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)

    def _fetch(self, query: str, *parameters: int) -> list[Row]:
        with sqlite_errors(self._path):
            if self._connection is None:
                self._connection = read_only(self._path)
            return self._connection.execute(query, parameters).fetchall()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

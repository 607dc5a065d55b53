"""Looking pages of the index up, beside the connection that writes."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from seb_appliance.broker.read.index_rows import IndexRows
from seb_appliance.errors import CorruptObjectError
from seb_appliance.state.failures import told_of

_PAGE: Final = "SELECT end_offset, total_bytes, sections FROM index_pages WHERE topic_id = ?"
_OF_OFFSET: Final = f"{_PAGE} AND base_offset <= ? ORDER BY base_offset DESC LIMIT 1"
_AT_TIME: Final = f"{_PAGE} AND newest_us >= ? ORDER BY newest_us, base_offset LIMIT 1"


class PageReader:
    """A connection of its own that only reads, in a thread of its own: a lookup waits for no
    transaction. It sees what is committed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="index")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def of_offset(self, topic_id: int, offset: int) -> IndexRows | None:
        """The page that answers for `offset`. Raises CorruptObjectError, ConfigurationError."""
        page = await self._found(_OF_OFFSET, topic_id, offset)
        return page if page is not None and offset < page.end else None

    async def at_time(self, topic_id: int, timestamp_us: int) -> IndexRows | None:
        """The first page with a record of that timestamp or later."""
        return await self._found(_AT_TIME, topic_id, timestamp_us)

    def disconnect(self) -> None:
        """Blocking: let go of the file until the next lookup."""
        if not self._closed:
            self._thread.submit(self._disconnect).result()

    def close(self) -> None:
        """Blocking: end the thread. Nothing can be looked up any more."""
        self.disconnect()
        self._closed = True
        self._thread.shutdown()

    async def _found(self, query: str, *parameters: int) -> IndexRows | None:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._find, query, parameters)

    def _find(self, query: str, parameters: tuple[int, ...]) -> IndexRows | None:
        with told_of(self._path):
            if self._connection is None:
                address = f"{self._path.absolute().as_uri()}?mode=ro"
                self._connection = sqlite3.connect(address, uri=True)
                self._connection.execute("PRAGMA busy_timeout = 5000")
            row = self._connection.execute(query, parameters).fetchone()
        if row is None:
            return None
        end_offset, total_bytes, sections = row
        try:
            return IndexRows.unpack(sections, end=end_offset, total_bytes=total_bytes)
        except ValueError as error:
            raise CorruptObjectError(f"a page of the local index: {error}") from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

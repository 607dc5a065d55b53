"""The process that runs SQL, as its parent sees it: one for each statement.

It has no credentials, no network and no files. It asks its parent for ranges of the data files that
it was given; the parent reads them from the store.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Final

import msgspec

from seb_appliance.broker.lake.queries import SqlJob, SqlRows
from seb_appliance.errors import SqlStatementError, StoreUncertainError
from seb_appliance.ops.jobs.job_process import frame, read_frame
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.storage.journal.retry import RetryingStore

_MODULE: Final = "seb_appliance.ops.jobs.sql.child"
_PIPE_BYTES: Final = 1 << 24


class Range(msgspec.Struct, tag=True):
    """Asked of the parent: bytes of an object of the job."""

    key: str
    at: int
    length: int


class SqlFailed(msgspec.Struct, tag=True):
    """The statement cannot be run: why, as DuckDB says it."""

    why: str


def _started() -> subprocess.Popen[bytes]:
    # asyncio's way to start a child stops the event loop for 20 ms under uvloop.
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment_without_settings(),
        start_new_session=True,
    )


class SqlProcess:
    """Fulfils `broker.lake.queries.SqlRunner`."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store

    async def run(self, job: SqlJob) -> SqlRows:
        """See `SqlRunner`."""
        child = _started()
        try:
            return await self._answered(child, job)
        except (OSError, EOFError) as error:
            raise SqlStatementError(
                "The process of the statement ended early; it may have needed too much memory."
            ) from error
        finally:
            child.kill()
            await asyncio.to_thread(child.wait)

    async def _answered(self, child: subprocess.Popen[bytes], job: SqlJob) -> SqlRows:
        assert child.stdin is not None
        assert child.stdout is not None
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_PIPE_BYTES)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), child.stdout
        )
        writing, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), child.stdin
        )
        writer = asyncio.StreamWriter(writing, protocol, None, loop)
        allowed = {key for table in job.tables for files in table.files for key, _ in files.objects}
        try:
            writer.write(frame(job))
            while True:
                found = await read_frame(reader, Range | SqlRows | SqlFailed)  # type: ignore[arg-type]
                if isinstance(found, SqlRows):
                    return found
                if isinstance(found, SqlFailed):
                    raise SqlStatementError(found.why)
                if found.key not in allowed:
                    raise StoreUncertainError("the process of a statement asked for another object")
                data = (await self._store.get_range(found.key, found.at, found.length)).data
                writer.write(frame(data))
                await writer.drain()
        finally:
            reading.close()
            writing.close()

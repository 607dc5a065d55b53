"""The process that runs SQL, as its parent sees it: one for each statement.

It has no credentials, no network and no files. It asks its parent for ranges of the data files that
it was given; the parent reads them from the store.
"""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.lake.queries import SqlJob, SqlRows
from seb_appliance.errors import SqlStatementError, StoreUncertainError
from seb_appliance.ops.jobs.job_process import LENGTH, frame, read_frame
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.tasks import Child

_MODULE: Final = "seb_appliance.ops.jobs.sql.child"
_PIECE_BYTES: Final = 256 * limits.KIB


class Range(msgspec.Struct, tag=True):
    """Asked of the parent: bytes of an object of the job."""

    key: str
    at: int
    length: int


class SqlFailed(msgspec.Struct, tag=True):
    """The statement cannot be run: why, as DuckDB says it."""

    why: str


class SqlProcess:
    """Fulfils `broker.lake.queries.SqlRunner`."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store

    async def run(self, job: SqlJob) -> SqlRows:
        """See `SqlRunner`."""
        child = await Child.start(_MODULE, environment_without_settings())
        try:
            return await self._answered(child, job)
        except (OSError, EOFError) as error:
            raise SqlStatementError(
                "The process of the statement ended early; it may have needed too much memory."
            ) from error
        finally:
            child.kill()
            await child.wait()

    async def _answered(self, child: Child, job: SqlJob) -> SqlRows:
        allowed = {key for table in job.tables for files in table.files for key, _ in files.objects}
        child.stdin.write(frame(job))
        while True:
            found = await read_frame(child.stdout, Range | SqlRows | SqlFailed)  # type: ignore[arg-type]
            if isinstance(found, SqlRows):
                return found
            if isinstance(found, SqlFailed):
                raise SqlStatementError(found.why)
            if found.key not in allowed:
                raise StoreUncertainError("the process of a statement asked for another object")
            data = (await self._store.get_range(found.key, found.at, found.length)).data
            await _give(child, data)


async def _give(child: Child, data: bytes) -> None:
    """Piece by piece: copies of 32 MiB would hold the event loop."""
    child.stdin.write(LENGTH.pack(len(data)))
    for at in range(0, len(data), _PIECE_BYTES):
        child.stdin.write(data[at : at + _PIECE_BYTES])
        await child.stdin.drain()

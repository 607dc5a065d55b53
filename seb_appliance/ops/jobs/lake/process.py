"""The process that writes lake tables, as its parent sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from seb_appliance.broker.lake.jobs import Printed, PrintJob, WriteJob, Written
from seb_appliance.broker.upkeep.rewrite_jobs import Asked
from seb_appliance.errors import CorruptObjectError, StoreUncertainError
from seb_appliance.ops.jobs.job_process import Hello, JobProcess
from seb_appliance.settings import Settings
from seb_appliance.storage.layout import Mode

# Arrow's own pool keeps what it has freed: 300 MB instead of 210 for a file of 64 MiB.
_ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system"}

_T = TypeVar("_T", Written, Printed)


class TableAnswer(msgspec.Struct):
    """What it made, or why it failed; `is_damage`: an input cannot be read, whoever tries again.
    Either way `requests` to the bucket were made, by kind. `rss_bytes`: its memory at most."""

    made: Written | Printed | None = None
    failure: str = ""
    is_damage: bool = False
    requests: dict[str, int] = {}
    received_bytes: int = 0
    rss_bytes: int = 0


class ChildTableWriter:
    """Fulfils `broker.lake.jobs.TableWriter`. `rss_bytes`: the most memory that a process took."""

    def __init__(self, settings: Settings, mode: Mode, cache: Path | None = None) -> None:
        self.asked = Asked()
        self.rss_bytes = 0
        hello = Hello(settings, mode, cache)
        self._process = JobProcess(
            "seb_appliance.ops.jobs.lake.child", "the tables'", hello, _ENVIRONMENT
        )

    async def write(self, job: WriteJob) -> Written:
        """See `TableWriter`."""
        return await self._done(job, Written)

    async def print(self, job: PrintJob) -> Printed:
        """See `TableWriter`."""
        return await self._done(job, Printed)

    async def close(self) -> None:
        await self._process.close()

    async def _done(self, job: WriteJob | PrintJob, kind: type[_T]) -> _T:
        answer = await self._process.ask(job, TableAnswer)
        self.asked.requests.update(answer.requests)
        self.asked.received_bytes += answer.received_bytes
        self.rss_bytes = max(self.rss_bytes, answer.rss_bytes)
        if isinstance(answer.made, kind):
            return answer.made
        if answer.is_damage:
            raise CorruptObjectError(answer.failure)
        raise StoreUncertainError(answer.failure)

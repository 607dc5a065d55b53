"""The process that writes lake tables, as its parent sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from seb_appliance.broker.lake.jobs import Printed, PrintJob, WriteJob, Written
from seb_appliance.broker.lake.table import LakeFile
from seb_appliance.broker.upkeep.rewrite_jobs import Asked
from seb_appliance.errors import StoreUncertainError
from seb_appliance.ops.host.memory import ENVIRONMENT
from seb_appliance.ops.jobs.job_process import Hello, JobProcess
from seb_appliance.ops.jobs.store_jobs import JobAnswer
from seb_appliance.settings import Settings
from seb_appliance.storage.layout import Mode

_FILES_AT_ONCE: Final = 1_000  # 0.6 ms of the event loop
_FILES: Final = ("listed", "living", "touched")  # of jobs

_T = TypeVar("_T", Written, Printed)


class FilesAhead(msgspec.Struct, tag=True):
    """Files of the next job: a part of its member `of`, from index `at` on. A job with 20,000 files
    in one piece would hold the event loop for 11 ms."""

    of: str
    at: int
    files: tuple[LakeFile, ...]


class TableJob(msgspec.Struct, tag=True):
    """`ahead`: by member, how many files of the job were sent before."""

    job: WriteJob | PrintJob
    ahead: dict[str, int]


class GatheredFiles:
    """In the child: the files that came ahead of a job."""

    def __init__(self) -> None:
        self._files: dict[str, list[LakeFile]] = {}

    def add(self, part: FilesAhead) -> None:
        files = self._files.setdefault(part.of, [])
        del files[part.at :]  # of a job that was given up
        files += part.files

    def whole(self, asked: TableJob) -> WriteJob | PrintJob:
        """Raises StoreUncertainError if some were sent to a process that has died since."""
        files, self._files = self._files, {}
        if any(len(files.get(of, ())) != count for of, count in asked.ahead.items()):
            raise StoreUncertainError("the process has not all files of its job")
        return replace(asked.job, **{of: tuple(files[of]) for of in asked.ahead})


class TableAnswer(JobAnswer[Written | Printed]):
    """`rss_bytes`: the memory of the process at most."""

    rss_bytes: int = 0


class ChildTableWriter:
    """Fulfils `broker.lake.jobs.TableWriter`. `rss_bytes`: the most memory that a process took."""

    def __init__(self, settings: Settings, mode: Mode, cache: Path | None = None) -> None:
        self.asked = Asked()
        self.rss_bytes = 0
        hello = Hello(settings, mode, cache)
        self._process = JobProcess(
            "seb_appliance.ops.jobs.lake.child", "the table writer", hello, ENVIRONMENT
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
        ahead = {}
        for of in _FILES:
            files: tuple[LakeFile, ...] = getattr(job, of, None) or ()
            if len(files) <= _FILES_AT_ONCE:
                continue
            for at in range(0, len(files), _FILES_AT_ONCE):
                part = FilesAhead(of, at, files[at : at + _FILES_AT_ONCE])
                await self._process.ask(part, TableAnswer)
            ahead[of] = len(files)
            job = replace(job, **{of: ()})
        answer = await self._process.ask(TableJob(job, ahead), TableAnswer)
        self.rss_bytes = max(self.rss_bytes, answer.rss_bytes)
        made = answer.taken(self.asked)
        assert isinstance(made, kind)
        return made

"""The tidier's child process, as its parent sees it."""

from __future__ import annotations

from pathlib import Path

from seb_appliance.broker.upkeep.rewrite_jobs import Asked, RewriteJob, Rewritten
from seb_appliance.ops.jobs.job_process import Hello, JobProcess
from seb_appliance.ops.jobs.store_jobs import JobAnswer
from seb_appliance.settings import Settings
from seb_appliance.storage.layout import Mode


class ChildRewriter:
    """Fulfils `broker.rewrite_jobs.Rewriter`. The requests of a job in which the child died are not
    counted. `cache`: the folder of our cache of entries, which the child reads; None if there is
    none."""

    def __init__(self, settings: Settings, mode: Mode, cache: Path | None = None) -> None:
        self.asked = Asked()
        hello = Hello(settings, mode, cache)
        self._process = JobProcess("seb_appliance.ops.jobs.tidier_child", "the tidier", hello)

    @property
    def pid(self) -> int | None:
        """Of the child; None while there is none."""
        return self._process.pid

    async def rewrite(self, job: RewriteJob) -> Rewritten:
        """See `Rewriter`."""
        answer = await self._process.ask(job, JobAnswer[Rewritten])
        return answer.taken(self.asked)

    async def close(self) -> None:
        await self._process.close()

"""The parent's side of the tidier's child process: started when needed, ended with its pipe."""

from __future__ import annotations

from asyncio.subprocess import Process
from pathlib import Path

from seb_appliance.broker.upkeep.rewrite_jobs import Asked, RewriteJob, Rewritten
from seb_appliance.errors import CorruptObjectError, StoreUncertainError
from seb_appliance.ops.jobs.tidier_pipe import Answer, Hello, frame, read_frame
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings
from seb_appliance.storage.layout import Mode
from seb_appliance.tasks import start_child


class ChildRewriter:
    """Fulfils `broker.rewrite_jobs.Rewriter`. A child that died is started anew for a later job;
    what it asked of the bucket in its last one is not known. `cache`: the folder of our cache of
    entries, which the child reads; None if there is none."""

    def __init__(self, settings: Settings, mode: Mode, cache: Path | None = None) -> None:
        self.asked = Asked()
        self._hello = Hello(settings, mode, cache)
        self._child: Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the child; None while there is none."""
        running = self._child is not None and self._child.returncode is None
        return self._child.pid if self._child is not None and running else None

    async def rewrite(self, job: RewriteJob) -> Rewritten:
        """See `Rewriter`."""
        try:
            answer = await self._asked(job)
        except BaseException as error:
            await self.close()  # whatever it is doing, nobody waits for it
            if isinstance(error, OSError | EOFError):
                raise StoreUncertainError("the tidier's process ended in the middle") from error
            raise
        self.asked.requests.update(answer.requests)
        self.asked.received_bytes += answer.received_bytes
        if answer.made is not None:
            return answer.made
        if answer.is_damage:
            raise CorruptObjectError(answer.failure)
        raise StoreUncertainError(answer.failure)

    async def close(self) -> None:
        """End the child, which ends by itself when its pipe is closed."""
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        await child.wait()

    async def _asked(self, job: RewriteJob) -> Answer:
        if self.pid is None:
            # It is told the settings through the pipe.
            self._child = await start_child(
                "seb_appliance.ops.jobs.tidier_child", environment_without_settings()
            )
            self._child.stdin.write(frame(self._hello))  # type: ignore[union-attr]
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(frame(job))
        await child.stdin.drain()
        return await read_frame(child.stdout, Answer)

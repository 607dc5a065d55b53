"""Runs the checks of the admin page, one at a time, each in a child process.

The parent sends one `Ask` as a frame; the child answers with `CheckResult` frames until one is
done. The last result of each kind is kept in memory until a restart.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec

from seb_appliance import limits
from seb_appliance.clock import Clock
from seb_appliance.ops.jobs.job_process import frame, read_frame
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings
from seb_appliance.tasks import Child
from seb_appliance.ui.options import CheckKind


class Ask(msgspec.Struct):
    """The child opens its own store with the appliance's `settings`. `folder`: for its temporary
    files; the parent removes it."""

    kind: CheckKind
    settings: Settings
    folder: Path


class CheckResult(msgspec.Struct):
    """`progress` as a sentence, or (`is_done`) the result: `data` as the command prints it with
    `--json`, or a sentence in `failure`. The parent adds when the check finished, and its time."""

    progress: str = ""
    is_done: bool = False
    is_well: bool = False
    data: dict[str, Any] = {}
    failure: str = ""
    finished_us: int = 0
    seconds: float = 0.0


class CheckKeeper:
    """`running`: the check that runs now; `progress`: a sentence about it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.running: CheckKind | None = None
        self.progress = ""
        self.found: dict[CheckKind, CheckResult] = {}
        self._settings = settings
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    @property
    def is_possible(self) -> bool:
        """False for a bucket in memory: no other process can read it."""
        return self._settings.address.kind != "memory"

    def begin(self, kind: CheckKind) -> bool:
        """Start a check; False if another one is running."""
        if self.running is not None or not self.is_possible:
            return False
        self.running, self.progress = kind, "starting"
        self._task = asyncio.create_task(self._run(kind), name=f"check {kind}")
        return True

    async def finished(self) -> None:
        """Wait for the running check."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await self.finished()

    async def _run(self, kind: CheckKind) -> None:
        began_s = self._clock.monotonic_s()
        folder = self._settings.data / "check.tmp"
        result = CheckResult(failure="The check was stopped.")
        try:
            # A killed appliance may have left something in it.
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            await asyncio.to_thread(folder.mkdir, mode=0o700)
            async with asyncio.timeout(limits.CHECK_S_MAX):
                result = await self._asked(Ask(kind, self._settings, folder))
        except TimeoutError:
            result = CheckResult(
                failure=f"The check was stopped after {limits.CHECK_S_MAX} s. The command has no "
                "time limit; run it on the machine."
            )
        except (OSError, EOFError) as error:
            result = CheckResult(failure=f"The process of the check ended early: {error}.")
        finally:
            result.finished_us = self._clock.wall_us()
            result.seconds = self._clock.monotonic_s() - began_s
            self.found[kind] = result
            self.running, self.progress = None, ""
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _asked(self, ask: Ask) -> CheckResult:
        child = await Child.start(
            "seb_appliance.ops.jobs.check_child", environment_without_settings()
        )
        try:
            return await self._answer(child, ask)
        except (OSError, EOFError):  # it has ended
            raise
        except BaseException:
            child.kill()
            raise
        finally:
            await child.wait()

    async def _answer(self, child: Child, ask: Ask) -> CheckResult:
        child.stdin.write(frame(ask))
        await child.stdin.drain()
        while True:
            result = await read_frame(child.stdout, CheckResult)
            if result.is_done:
                return result
            self.progress = result.progress

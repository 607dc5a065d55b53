"""Runs the checks that the admin page asks for, one at a time, each in a child process.

The parent sends one `Ask` as a frame; the child answers with any number of `Told`, the last of
which is done. The last result of each kind is kept in memory until a restart.
"""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from seb_appliance import limits
from seb_appliance.clock import Clock
from seb_appliance.ops.jobs.tidier_process import frame, read_frame
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings
from seb_appliance.tasks import start_child
from seb_appliance.ui.options import CheckKind


class Ask(msgspec.Struct):
    """`settings`: of the appliance, with which the child makes its own store. `folder`: where its
    temporary files may lie; the parent removes it."""

    kind: CheckKind
    settings: Settings
    folder: Path


class Told(msgspec.Struct):
    """Progress in words, or (`is_done`) what was found: `data` as `seb doctor --json` and
    `seb fsck --json` print it; a `failure` is a sentence that says why nothing was."""

    progress: str = ""
    is_done: bool = False
    is_well: bool = False
    data: dict[str, Any] = {}
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a check: `data` as the command prints it with `--json`; or why there is none."""

    finished_us: int
    seconds: float
    is_well: bool
    failure: str = ""
    data: dict[str, Any] = field(default_factory=dict)


class CheckKeeper:
    """`running`: which check is on its way, and `progress` how far it is, in words."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.running: CheckKind | None = None
        self.progress = ""
        self.found: dict[CheckKind, Found] = {}
        self._settings = settings
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    @property
    def is_possible(self) -> bool:
        """A bucket in memory cannot be looked at by another process."""
        return self._settings.address.kind != "memory"

    def begin(self, kind: CheckKind) -> bool:
        """Whether it was begun: not while one is running."""
        if self.running is not None or not self.is_possible:
            return False
        self.running, self.progress = kind, "starting"
        self._task = asyncio.create_task(self._run(kind), name=f"check {kind}")
        return True

    async def finished(self) -> None:
        """Until none is running."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await self.finished()

    async def _run(self, kind: CheckKind) -> None:
        began_s = self._clock.monotonic_s()
        folder = self._settings.data / "check.tmp"
        told = Told(failure="It was broken off.")
        try:
            await asyncio.to_thread(_emptied, folder)
            async with asyncio.timeout(limits.CHECK_S_MAX):
                told = await self._asked(Ask(kind, self._settings, folder))
        except TimeoutError:
            told = Told(
                failure=f"It was not done after {limits.CHECK_S_MAX} s and was broken off. The "
                "command has no such bound; run it on the machine."
            )
        except (OSError, EOFError) as error:
            told = Told(failure=f"The process of the check ended in the middle: {error}.")
        finally:
            seconds = self._clock.monotonic_s() - began_s
            self.found[kind] = Found(
                self._clock.wall_us(), seconds, told.is_well, told.failure, told.data
            )
            self.running, self.progress = None, ""
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _asked(self, ask: Ask) -> Told:
        child = await start_child(
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

    async def _answer(self, child: Process, ask: Ask) -> Told:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(frame(ask))
        await child.stdin.drain()
        while True:
            told = await read_frame(child.stdout, Told)
            if told.is_done:
                return told
            self.progress = told.progress


def _emptied(folder: Path) -> None:
    """A new folder; what a killed appliance left there is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)

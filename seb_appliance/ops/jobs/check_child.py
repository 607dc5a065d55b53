"""The child process of a check that the admin page asks for: `seb doctor` or a quick `seb fsck`.

It is a process because replaying a log would take the writer's core. It has a low priority and a
store of its own, and ends when its pipe is closed.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import Final

from seb_appliance.clock import SystemClock
from seb_appliance.errors import SebError
from seb_appliance.ops.checks.check import check
from seb_appliance.ops.checks.checkup import checkup
from seb_appliance.ops.jobs.check_job import Ask, Told
from seb_appliance.ops.jobs.tidier_process import first_frame, send_frame

NICE: Final = 10
_TOLD_EVERY_S: Final = 0.25


def main() -> None:
    os.nice(NICE)
    asyncio.run(_serve())


async def _serve() -> None:
    reader, ask = await first_frame(Ask)
    tempfile.tempdir = str(ask.folder)
    left_alone = asyncio.create_task(reader.read())
    working = asyncio.create_task(_answered(ask))
    await asyncio.wait([left_alone, working], return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        os._exit(0)  # threads of a store may hang on a request for long
    send_frame(working.result())
    os._exit(0)


async def _answered(ask: Ask) -> Told:
    try:
        if ask.kind == "doctor":
            send_frame(Told("asking the bucket"))
            found = await checkup(ask.settings)
            return Told(is_done=True, is_well=not found.exit_code, data=found.data)
        told = await check(ask.settings, _Teller().progress, quick=True, bucket_only=True)
        return Told(is_done=True, is_well=not told.exit_code, data=told.data)
    except (SebError, OSError) as error:
        return Told(is_done=True, failure=getattr(error, "detail", "") or str(error))


class _Teller:
    """Says how far it is, a few times a second at most."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._phase = ""
        self._next_s = 0.0

    def progress(self, done: int, total: int, phase: str) -> None:
        now_s = self._clock.monotonic_s()
        if phase == self._phase and now_s < self._next_s:
            return
        self._phase, self._next_s = phase, now_s + _TOLD_EVERY_S
        send_frame(Told(f"{phase}, {done:,} of {total:,}" if total else phase))


if __name__ == "__main__":
    main()

"""The child process of a check started on the admin page: `seb doctor` or a quick `seb fsck`.

A process of its own, with a low priority and its own store, because replaying a log would take the
writer's core. It ends when its pipe is closed.
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
from seb_appliance.ops.jobs.check_job import Ask, CheckResult
from seb_appliance.ops.jobs.job_process import first_frame, send_frame
from seb_appliance.storage.journal.replay import Progress

NICE: Final = 10
_REPORT_EVERY_S: Final = 0.25


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


async def _answered(ask: Ask) -> CheckResult:
    try:
        if ask.kind == "doctor":
            send_frame(CheckResult("asking the bucket"))
            data, exit_code = await checkup(ask.settings)
        else:
            data, exit_code = await check(ask.settings, _progress(), quick=True, bucket_only=True)
        return CheckResult(is_done=True, is_well=not exit_code, data=data)
    except (SebError, OSError) as error:
        return CheckResult(is_done=True, failure=getattr(error, "detail", "") or str(error))


def _progress() -> Progress:
    """Reports the progress to the parent, a few times a second at most."""
    clock, last_phase, next_s = SystemClock(), "", 0.0

    def report(done: int, total: int, phase: str) -> None:
        nonlocal last_phase, next_s
        now_s = clock.monotonic_s()
        if phase != last_phase or now_s >= next_s:
            last_phase, next_s = phase, now_s + _REPORT_EVERY_S
            send_frame(CheckResult(f"{phase}, {done:,} of {total:,}" if total else phase))

    return report


if __name__ == "__main__":
    main()

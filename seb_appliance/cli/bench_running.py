"""Running a measurement: its event loop, interrupts, and the line that moves."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

from seb_appliance.cli.failures import REFUSED, UNAVAILABLE, CommandError
from seb_appliance.cli.progress import Progress

if TYPE_CHECKING:
    from seb_appliance.bench.result import Result
    from seb_appliance.bench.session import Session


def run(session: Session) -> Result:
    """Raises CommandError."""
    from seb_appliance.bench.failures import BenchError
    from seb_appliance.bench.machine import allow_many_files

    allow_many_files()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_until_stopped(session))
    except BenchError as error:
        code = REFUSED if error.reachable else UNAVAILABLE
        raise CommandError(str(error), code) from error


async def _until_stopped(session: Session) -> Result:
    """The first interrupt ends the load and leaves a report; the second one ends it all."""
    from seb_appliance.bench.session import run_session

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupted)
    with Progress() as progress:
        return await run_session(session, stop, progress.show)


def _loop_factory() -> Any:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop

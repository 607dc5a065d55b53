"""Running what `seb bench` measures with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from seb_appliance.cli.errors import REFUSED, UNAVAILABLE, CommandError
from seb_appliance.errors import StartError

T = TypeVar("T")


def check_installed() -> None:
    """Raises StartError."""
    try:
        import hdrh.histogram  # noqa: F401
    except ModuleNotFoundError as error:
        raise StartError(
            f"this needs {error.name}, which is not installed: pip install 'seb-appliance[bench]'"
        ) from error


def run_load(work: Coroutine[Any, Any, T]) -> T:
    """On the fastest event loop there is, with as many open files as are allowed. Raises
    CommandError when nothing could be measured."""
    from seb_appliance.bench.connecting import BenchError
    from seb_appliance.bench.machine import allow_many_files

    factory = None
    with contextlib.suppress(ModuleNotFoundError):
        import uvloop

        factory = uvloop.new_event_loop
    allow_many_files()
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)
    except BenchError as error:
        code = REFUSED if error.reachable else UNAVAILABLE
        raise CommandError(str(error), code) from error

"""Child processes: modules of this package that are told their work through a pipe."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping


async def start_child(module: str, environment: Mapping[str, str] | None) -> Process:
    """`python -m <module>`, which ends when its standard input is closed.
    `environment`: its variables; None: those of this process."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdin=PIPE,
        stdout=PIPE,
        env=environment,
        start_new_session=True,  # a terminal's Ctrl-C is for the parent, which ends it
    )

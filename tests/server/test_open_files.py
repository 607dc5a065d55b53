"""More connections than files that may be open: those that are in are served, and all goes on."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from seb_appliance import limits
from tests.crash.arena import directory_arena
from tests.support.load import Connection, LostError, NotSentError
from tests.support.process import starting_anew

pytestmark = pytest.mark.slow

FILES_MAX = 96
CONNECTIONS = 150


async def status(connection: Connection, timeout_s: float = 10.0) -> int:
    """0: nobody answered."""
    try:
        return (await connection.request("GET", "/healthz", timeout_s=timeout_s)).status
    except (NotSentError, LostError):
        return 0


async def test_the_default_limit_of_open_files_is_raised_for_many_clients(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        async with directory_arena("A", tmp_path) as arena:
            with starting_anew():  # with the limits of this process
                seb = arena.start()
            await seb.ready()
            allowed = resource.prlimit(seb.process.pid, resource.RLIMIT_NOFILE)
            assert allowed == (min(hard, limits.CONNECTIONS_MAX + 1000), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_too_many_connections_end_neither_the_process_nor_those_that_are_in(
    tmp_path: Path,
) -> None:
    async with directory_arena("A", tmp_path) as arena:
        seb = arena.start()
        await seb.ready()
        await arena.begin(seb, producers=4)
        pid, number = seb.process.pid, resource.RLIMIT_NOFILE
        before = resource.prlimit(pid, number)
        resource.prlimit(pid, number, (FILES_MAX, before[1]))
        crowd = [Connection(seb.port) for _ in range(CONNECTIONS)]
        answers = await asyncio.gather(*(status(connection, 2) for connection in crowd))
        print({answer: answers.count(answer) for answer in answers})
        assert 0 < answers.count(200) < CONNECTIONS
        await arena.load.stop()
        for connection in crowd:
            connection.close()
        later = Connection(seb.port)
        assert await status(later) == 200
        later.close()
        resource.prlimit(pid, number, before)
        arena.load.start(4)
        await arena.load.until_acked(20)
        await arena.verdict(seb)

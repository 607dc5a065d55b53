"""An appliance that is stopped for longer than any timeout of its requests, and goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import Arena, s3_arena
from tests.crash.test_two_appliances import FENCED, take_over
from tests.support.load import Connection, LostError, NotSentError, pass_time

# A connection to the store gives up after 13 s, a claim of mode B is looked for every 10 s.
PAUSE_S = float(os.environ.get("SEB_TEST_PAUSE_S", "20"))
KNOCKS = 16

pytestmark = [pytest.mark.slow, pytest.mark.measured]


async def knock(port: int, key: str) -> str:
    """What a produce request was told."""
    connection = Connection(port, key)
    try:
        path = "/v1/topics/orders/records"
        answer = await connection.request("POST", path, b"too late", timeout_s=PAUSE_S + 60)
    except (LostError, NotSentError) as error:
        return type(error).__name__
    finally:
        connection.close()
    return answer.code


async def stops_and_goes_on(arena: Arena) -> None:
    seb = arena.processes[-1]
    seb.send(signal.SIGSTOP)
    await pass_time(PAUSE_S)
    seb.send(signal.SIGCONT)
    await arena.load.until_acked(20)
    assert "Traceback" not in seb.shown


async def is_taken_over_meanwhile(arena: Arena) -> None:
    """What reaches its socket after that is not acknowledged when it wakes up."""
    old = arena.processes[-1]
    old.send(signal.SIGSTOP)
    new = await take_over(arena, "second", old)
    arena.serve_from(new)
    knocks = [asyncio.create_task(knock(old.port, arena.load.doors.key)) for _ in range(KNOCKS)]
    await pass_time(PAUSE_S)
    since = len(arena.load.calls)
    old.send(signal.SIGCONT)
    told = await asyncio.gather(*knocks)
    print(told)
    assert set(told) <= {"LostError", "NotSentError", "fenced", "shutting_down", "overloaded"}
    assert await old.ended() == FENCED, old.shown
    assert "Traceback" not in old.shown
    await arena.load.until_acked(20)
    assert arena.load.acked_since(since, old.port) == 0
    await arena.verdict(new)


async def both(mode: Mode, folder: Path) -> None:
    async with s3_arena(mode, folder) as arena:
        seb = arena.start("first", take_over=True)
        await seb.ready()
        await arena.begin(seb)
        await stops_and_goes_on(arena)
        await is_taken_over_meanwhile(arena)


async def test_a_long_stop_loses_nothing_and_who_was_taken_over_acknowledges_nothing(
    tmp_path: Path,
) -> None:
    await asyncio.gather(both("A", tmp_path / "a"), both("B", tmp_path / "b"))

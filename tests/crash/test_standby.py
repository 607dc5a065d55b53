"""A standby as a process of its own: it is promoted, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import TOPICS, Arena, s3_arena
from tests.support.load import Connection, LostError, NotSentError, Response, read_topic
from tests.support.process import ROOT, SebProcess

pytestmark = pytest.mark.slow

FENCED = 75
WITHIN_S = 60.0
POLL = ("--follow", "--follow-poll", "100ms")


async def asked(seb: SebProcess, key: str, method: str, path: str, body: bytes = b"") -> Response:
    """The answer of an appliance that may be about to open its doors."""
    connection = Connection(seb.port, key)
    until_s = time.monotonic() + WITHIN_S
    try:
        while True:
            try:
                return await connection.request(method, path, body, timeout_s=5)
            except (NotSentError, LostError):
                assert time.monotonic() < until_s, seb.shown
                assert seb.running, seb.shown
                await asyncio.sleep(0.05)
    finally:
        connection.close()


async def follows(arena: Arena, standby: SebProcess) -> None:
    """It answers, says that it is one, and takes nothing."""
    key = arena.load.doors.key
    found = (await asked(standby, key, "GET", "/v1/status")).json()
    assert found["standby"] is not None
    assert not found["ready"]
    assert found["problems"] == []
    told = await asked(standby, key, "POST", f"/v1/topics/{TOPICS[0]}/records", b"no")
    assert (told.status, told.code) == (409, "standby")
    assert json.loads(told.body)["side_effects"] == "none"
    assert (await asked(standby, "", "GET", "/readyz")).status == 503


async def reads_on(arena: Arena, writer: SebProcess, standby: SebProcess) -> None:
    """What the writer had is at the standby soon, the same records at the same offsets."""
    key = arena.load.doors.key
    for topic in TOPICS:
        had = await read_topic(writer.port, key, topic)
        until_s = time.monotonic() + WITHIN_S
        while len(found := await read_topic(standby.port, key, topic)) < len(had):
            assert time.monotonic() < until_s, (len(found), len(had), standby.shown)
            await asyncio.sleep(0.05)
        assert found[: len(had)] == had


async def promoted(standby: SebProcess) -> float:
    """Seconds that `seb promote` says it took."""
    command = [sys.executable, "-m", "seb_appliance", "promote", "--data", str(standby.data)]
    running = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await running.communicate()
    assert running.returncode == 0, (err.decode(), standby.shown)
    print(out.decode().strip())
    return float(out.decode().rsplit("after", 1)[1].removesuffix(" s\n"))


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_a_promoted_standby_has_every_acknowledged_record_once(
    mode: Mode, tmp_path: Path
) -> None:
    async with s3_arena(mode, tmp_path) as arena:
        arena.load.timeout_s = 1.5
        first = arena.start("first")
        await first.ready(WITHIN_S)
        await arena.begin(first, producers=3)
        # The writer goes on until it is fenced.
        second = arena.start("second", *POLL)
        await follows(arena, second)
        await reads_on(arena, first, second)
        arena.serve_from(first, second)
        seconds = [await promoted(second)]
        since = len(arena.load.calls)
        assert await first.ended(WITHIN_S) == FENCED, first.shown
        assert arena.load.acked_since(since, first.port) == 0
        await arena.load.until_acked(5, second.port, WITHIN_S)
        # The writer dies; the one that was fenced first is the standby now.
        third = arena.start("first", *POLL)
        await follows(arena, third)
        await reads_on(arena, second, third)
        second.kill()
        seconds.append(await promoted(third))
        arena.serve_from(third)
        await arena.load.until_acked(5, third.port, WITHIN_S)
        # Told to follow, the one that wrote last goes on as the writer.
        third.kill()
        fourth = arena.start("first", *POLL)
        arena.serve_from(fourth)
        await fourth.ready(WITHIN_S)
        await arena.load.until_acked(5, fourth.port, WITHIN_S)
        assert max(seconds) < WITHIN_S  # a second or two, on a machine with nothing else to do
        await arena.verdict(fourth)
        await arena.stop_and_compare(fourth)

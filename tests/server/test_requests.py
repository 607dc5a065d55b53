"""What is asked of the bucket: nothing while idle, one PUT for each window whatever the topics."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import TOPICS, Arena, s3_arena
from tests.support.load import Connection
from tests.support.process import SebProcess
from tests.support.producer import Doors, Load

pytestmark = pytest.mark.slow

IDLE_S = 60
BUSY_S = 8


@asynccontextmanager
async def idle(mode: Mode, folder: Path) -> AsyncIterator[tuple[Arena, SebProcess]]:
    """An appliance that had something to do, and has no more."""
    async with s3_arena(mode, folder) as arena:
        seb = arena.start()
        await seb.ready()
        await arena.begin(seb)
        await arena.load.stop()
        for consumer in arena.consumers.values():
            await consumer.stop()
        yield arena, seb


async def test_nothing_is_asked_of_the_bucket_while_idle(tmp_path: Path) -> None:
    """Both modes in the same minute, with a reader at the log end and health checks."""
    async with idle("A", tmp_path / "A") as (a, in_a), idle("B", tmp_path / "B") as (b, in_b):
        assert a.proxy is not None
        assert b.proxy is not None
        before = [len(arena.proxy.requests) for arena in (a, b) if arena.proxy]
        until_s = time.monotonic() + IDLE_S
        connections = [
            Connection(seb.port, arena.load.doors.key) for arena, seb in ((a, in_a), (b, in_b))
        ]
        while time.monotonic() < until_s:
            for connection in connections:
                assert (await connection.request("GET", "/healthz")).status == 200
                assert (await connection.request("GET", "/metrics")).status == 200
            wait = f"/v1/topics/{TOPICS[0]}/records?offset=latest&wait=5s"
            early = time.monotonic() < until_s - IDLE_S + 20  # a stale zombie asks; see readiness
            await asyncio.gather(
                *(c.request("GET", wait if early else "/healthz") for c in connections)
            )
            await asyncio.sleep(0.2)
        for connection in connections:
            connection.close()
        assert [len(arena.proxy.requests) for arena in (a, b) if arena.proxy] == before


async def test_a_hundred_topics_cost_one_put_a_second(tmp_path: Path) -> None:
    async with s3_arena("A", tmp_path, linger="1s") as arena:
        assert arena.proxy is not None
        seb = arena.start()
        await seb.ready()
        topics = tuple(f"sensors.room-{i}" for i in range(100))
        arena.load = Load(Doors(seb.admin_key, [seb.port]), topics)
        arena.load.start(200)
        await arena.load.until_acked(400, within_s=20)
        before, began_s = len(arena.proxy.requests), time.monotonic()
        await asyncio.sleep(BUSY_S)
        asked = arena.proxy.requests[before:]
        seconds = time.monotonic() - began_s
        puts = Counter(method for method, _ in asked)["PUT"]
        print(f"{puts} PUTs in {seconds:.1f} s, {len(asked)} requests in all")
        assert len({call.topic for call in arena.load.calls}) == len(topics)
        assert puts <= seconds + 2
        assert puts == len(asked)
        await arena.verdict(seb)

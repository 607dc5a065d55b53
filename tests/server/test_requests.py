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
from tests.crash.arena import TOPICS, Arena, rounds, s3_arena
from tests.support.load import Connection, pass_time
from tests.support.process import SebProcess
from tests.support.producer import Doors, Load

pytestmark = [pytest.mark.slow, pytest.mark.measured]

IDLE_S = 60 if rounds(0) else 20
READERS_S = 15  # then nobody reads; see the test
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
    """Both modes at once, asked for their health, with a reader that waits at the log end for as
    long as the bucket's last answer counts as fresh (30 s)."""
    async with idle("A", tmp_path / "A") as (a, in_a), idle("B", tmp_path / "B") as (b, in_b):
        proxies = [proxy for proxy in (a.proxy, b.proxy) if proxy is not None]
        before = [len(proxy.requests) for proxy in proxies]
        connections = [Connection(in_a.port, a.load.doors.key)]
        connections += [Connection(in_b.port, b.load.doors.key)]
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < IDLE_S:
            paths = ["/healthz", "/metrics"]
            if passed_s < READERS_S:
                paths.append(f"/v1/topics/{TOPICS[0]}/records?offset=latest&wait=3s")
            for path in paths:
                answers = await asyncio.gather(*(c.request("GET", path) for c in connections))
                assert [answer.status for answer in answers] == [200, 200]
            await pass_time(0.2)
        for connection in connections:
            connection.close()
        assert [len(proxy.requests) for proxy in proxies] == before


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
        await pass_time(BUSY_S)
        asked = arena.proxy.requests[before:]
        seconds = time.monotonic() - began_s
        puts = Counter(method for method, _ in asked)["PUT"]
        print(f"{puts} PUTs in {seconds:.1f} s, {len(asked)} requests in all")
        assert len({call.topic for call in arena.load.calls}) == len(topics)
        assert puts <= seconds + 2
        assert puts == len(asked)
        await arena.verdict(seb)

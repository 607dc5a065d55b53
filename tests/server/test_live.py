"""Live streams of a real process: hundreds of them idle, busy, and at a stop."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time
from pathlib import Path

import pytest

from tests.server.serving import Serving, serving
from tests.support.load import pass_time
from tests.support.yardstick import at_this_speed

pytestmark = [pytest.mark.slow, pytest.mark.measured]

FOLLOWERS = 200
LONG_POLLS = 1_000
IDLE_S = 20.0  # longer than from one ping to the next
CORE_SHARE_MAX = 0.01
RECORDS = 2_000
END = b": the appliance stops"


@pytest.fixture(autouse=True)
def _many_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))


async def get(running: Serving, query: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A read of the topic `live` that was sent; a live stream has begun."""
    reader, writer = await sent(running, f"/v1/topics/live/records?{query}")
    if "format=sse" in query:
        await reader.readuntil(b"retry: 1000\nid: ")
        await reader.readuntil(b"\n\n")
    return reader, writer


async def get_many(running: Serving) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A live stream of many topics that has begun."""
    reader, writer = await sent(running, "/v1/records?topics=**&offset=latest")
    await reader.readuntil(b"retry: 1000\nid: 1-0\n\n")
    return reader, writer


async def sent(running: Serving, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    key = (running.data / "admin.key").read_text().strip()
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\n"
    writer.write(f"{head}Authorization: Bearer {key}\r\n\r\n".encode())
    return reader, writer


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def metric(running: Serving, name: str) -> int:
    lines = running.request("GET", "/metrics")[1].decode().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


async def test_hundreds_that_wait_cost_nothing_while_nothing_happens(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        running.request("PUT", "/v1/topics/live")
        waiting = [await get(running, "format=sse&offset=latest") for _ in range(FOLLOWERS)]
        waiting += [await get(running, "offset=latest&wait=60s") for _ in range(LONG_POLLS)]
        while metric(running, "seb_waiting_readers") < LONG_POLLS:
            await pass_time(0.05)
        await pass_time(1.0)
        before_s, begun_s = cpu_s(running.process.pid), time.monotonic()
        await pass_time(IDLE_S)
        share = (cpu_s(running.process.pid) - before_s) / (time.monotonic() - begun_s)
        print(f"{FOLLOWERS} followers, {LONG_POLLS} long polls: {share:.2%} of a core")
        assert metric(running, "seb_followers") == FOLLOWERS
        assert share < at_this_speed(CORE_SHARE_MAX)
        for _, writer in waiting:
            writer.close()


async def followed(reader: asyncio.StreamReader, count: int) -> list[int]:
    """The offsets of the next `count` records, whose values are their offsets."""
    offsets: list[int] = []
    while len(offsets) < count:
        line = await reader.readline()
        assert line, offsets
        if line.startswith(b"data: "):
            record = json.loads(line[6:])
            assert int(record["value"]) == record["offset"]
            offsets.append(record["offset"])
    return offsets


@pytest.mark.alone
async def test_all_followers_get_each_record_once_in_order_and_it_is_encoded_once(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as running:
        running.request("PUT", "/v1/topics/live")
        streams = [await get(running, "format=sse&offset=latest") for _ in range(FOLLOWERS)]
        received = asyncio.gather(*(followed(reader, RECORDS) for reader, _ in streams))

        def produce() -> None:
            for first in range(0, RECORDS, 10):
                body = "\n".join(json.dumps({"value": n}) for n in range(first, first + 10))
                path = "/v1/topics/live/records"
                assert running.request("POST", path, body.encode(), NDJSON)[0] == 201

        begun_s = time.monotonic()
        await asyncio.to_thread(produce)
        for offsets in await received:
            assert offsets == list(range(RECORDS))
        took_s = time.monotonic() - begun_s
        print(f"{RECORDS * FOLLOWERS / took_s:,.0f} records/s to {FOLLOWERS} followers")
        assert metric(running, "seb_live_encoded_total") == RECORDS
        assert metric(running, "seb_followers_cut_total") == 0
        for _, writer in streams:
            writer.close()


NDJSON = "application/x-ndjson"


async def test_a_stop_ends_all_of_them_within_a_second(tmp_path: Path) -> None:
    # The best of three: the machine may have had something else to do.
    seconds = [await a_stop(tmp_path / "0")]
    while min(seconds) >= 1.0 and len(seconds) < 3:
        seconds.append(await a_stop(tmp_path / str(len(seconds))))
    assert min(seconds) < at_this_speed(1.0), seconds


async def a_stop(folder: Path) -> float:
    """Seconds until all of them were told."""
    folder.mkdir()
    with serving(folder) as running:
        running.request("PUT", "/v1/topics/live")
        streams = [await get(running, "format=sse&offset=latest") for _ in range(FOLLOWERS)]
        streams += [await get_many(running) for _ in range(FOLLOWERS)]
        polls = [await get(running, "offset=latest&wait=60s") for _ in range(FOLLOWERS)]
        begun_s = time.monotonic()
        running.process.terminate()
        for rest in await asyncio.gather(*(reader.read() for reader, _ in streams)):
            assert END in rest
            assert rest.endswith(b"0\r\n\r\n")
        for rest in await asyncio.gather(*(reader.read() for reader, _ in polls)):
            assert rest.startswith(b"HTTP/1.1 200 OK\r\n")
        seconds = time.monotonic() - begun_s
        assert await asyncio.to_thread(running.process.wait, 30) == 0
        for _, writer in streams + polls:
            writer.close()
    return seconds

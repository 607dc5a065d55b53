"""10,000 connections on which little is said, more than may be open: whoever asks is answered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from seb_appliance import limits
from tests.proof.stalled import allow_many_files
from tests.support.load import Connection
from tests.support.process import Bucket, SebProcess, seb_process

pytestmark = pytest.mark.slow

SLOW = 10_000
AT_ONCE = 100  # connecting at one time
GOOD = 4
ASKED_MIN = 100  # by the good clients, after all slow ones were there
GROWTH_BYTES_MAX = 400_000_000  # 8,000 connections


def half_requests(seb: SebProcess) -> Iterator[bytes]:
    """What is said on one connection after the other. One in ten waits for records."""
    key = f"Authorization: Bearer {seb.admin_key}\r\n"
    to = "HTTP/1.1\r\nHost: x\r\n"
    form = "Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://x\r\n"
    half_head = f"GET /healthz {to}X-Slow: "
    of_stranger = f"POST /ui/login {to}{form}Content-Length: 900\r\n\r\nname="
    of_client = f"POST /v1/topics/slow/records {to}{key}Content-Length: 900\r\n\r\nhalf"
    in_chunks = f"POST /v1/topics/slow/records {to}{key}Transfer-Encoding: chunked\r\n\r\n9\r\nhalf"
    asked_once = f"GET /healthz {to}\r\n"
    long_poll = f"GET /v1/topics/slow/records?offset=0&wait=60s {to}{key}\r\n"
    said = (half_head, "", of_stranger, of_client, asked_once, in_chunks, of_stranger, asked_once,
            of_client, long_poll)  # fmt: skip
    return itertools.cycle(text.encode() for text in said)


async def hold(seb: SebProcess, says: Iterator[bytes], held: list[socket.socket]) -> None:
    """Open connections, say half of something, and keep them, until there are SLOW of them."""
    loop = asyncio.get_running_loop()
    while len(held) < SLOW:
        slow = socket.socket()
        slow.setblocking(False)
        held.append(slow)
        try:
            await loop.sock_connect(slow, ("127.0.0.1", seb.port))
            await loop.sock_sendall(slow, next(says))
        except ConnectionError:
            pass  # refused or cut already: it stays counted


async def trickle(held: list[socket.socket]) -> None:
    """A byte on some of the connections, again and again."""
    while True:
        for slow in held[::10]:
            with contextlib.suppress(OSError):  # not connected yet, or cut
                slow.send(b"x")
        await asyncio.sleep(1)


async def ask(seb: SebProcess, told: asyncio.Queue[tuple[int, float]], stop: asyncio.Event) -> None:
    """As a good client: each request on a connection of its own, or on one that is kept."""
    kept = Connection(seb.port, seb.admin_key)
    while not stop.is_set():
        for connection in (kept, Connection(seb.port, seb.admin_key)):
            began_s = time.monotonic()
            path = "/v1/topics/good/records"
            answer = await connection.request("POST", path, b"good", timeout_s=30)
            told.put_nowait((answer.status, time.monotonic() - began_s))
            if connection is not kept:
                connection.close()
    kept.close()


async def test_ten_thousand_slow_connections_keep_no_good_client_out(tmp_path: Path) -> None:
    allow_many_files()
    held: list[socket.socket] = []
    telling: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
    told: list[tuple[int, float]] = []
    stop = asyncio.Event()
    async with seb_process(Bucket.directory(tmp_path / "bucket"), tmp_path / "data") as seb:
        first = Connection(seb.port, seb.admin_key)
        for topic in ("good", "slow"):
            assert (await first.request("PUT", f"/v1/topics/{topic}")).status == 201
        first.close()
        small, says = seb.rss_bytes(), half_requests(seb)
        trickling = asyncio.create_task(trickle(held))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(GOOD):
                    group.create_task(ask(seb, telling, stop))
                await asyncio.gather(*(hold(seb, says, held) for _ in range(AT_ONCE)))
                before = telling.qsize()
                while len(told) < before + ASKED_MIN:
                    told.append(await telling.get())
                open_now = len(list(Path(f"/proc/{seb.process.pid}/fd").iterdir()))
                stop.set()
        finally:
            trickling.cancel()
            for slow in held:
                slow.close()
        peak = seb.rss_bytes("VmHWM")
        seconds = sorted(took for _, took in told)
        p50_s, p99_s = seconds[len(told) // 2], seconds[len(told) * 99 // 100]
        print(f"{len(held)} slow, {open_now} files open, {(peak - small) / 1e6:.0f} MB more")
        print(f"{len(told)} good, {before} meanwhile, p50 {p50_s:.3f} s, p99 {p99_s:.3f} s")
        assert Counter(status for status, _ in told) == {201: len(told)}
        assert 0.9 < open_now / limits.CONNECTIONS_MAX < 1.1
        assert peak - small < GROWTH_BYTES_MAX
        assert "Traceback" not in seb.shown

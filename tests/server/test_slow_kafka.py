"""10,000 Kafka connections on which little is said or read: whoever produces beside them is served,
also on a new connection."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.stalled import allow_many_files
from tests.support.kafka_client import Client, of, request, to
from tests.support.load import Connection
from tests.support.process import Bucket, SebProcess, seb_process
from tests.support.servers.s3_server import free_port
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.slow

SLOW = 10_000
AT_ONCE = 100  # connecting at one time
GOOD = 2
ASKED_MIN = 40  # by the good clients, after all slow ones were there
GROWTH_BYTES_MAX = 400_000_000
RECORD = b"x" * 100_000
RECORDS = 50  # of the topic that slow readers ask for
BODY = to("good", made(Sent(b"good")))


async def connect(port: int, secret: str) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    answer = await client.authenticate(secret)
    assert answer["error_code"] == 0, answer
    return client


def slow_requests(secret: str) -> Iterator[bytes]:
    """What is said on one connection after the other. Nobody reads what is answered."""
    token = b"\0anybody\0" + secret.encode()
    key = request("SaslHandshake", 1, mechanism="PLAIN") + request(
        "SaslAuthenticate", auth_bytes=token
    )
    half_of_stranger = request("ApiVersions", 3)[:-2]
    half = request("Produce", **to("slow", made(Sent(b"v" * 900))))[:-500]
    unread = request("Fetch", 12, **of(("slow", 0, 0)))
    wait = request("Fetch", 12, **of(("quiet", 0, 0), max_wait_ms=60_000))
    said = (b"", half_of_stranger, key, key + half, key + unread, key + wait)
    return itertools.cycle(said)


async def hold(port: int, says: Iterator[bytes], held: list[socket.socket]) -> None:
    """Open connections, say something, and keep them, until there are SLOW of them."""
    loop = asyncio.get_running_loop()
    while len(held) < SLOW:
        slow = socket.socket()
        slow.setblocking(False)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        held.append(slow)
        with contextlib.suppress(ConnectionError):  # refused or cut already: it stays counted
            await loop.sock_connect(slow, ("127.0.0.1", port))
            await loop.sock_sendall(slow, next(says))


async def ask(
    port: int, secret: str, told: asyncio.Queue[tuple[int, float]], stop: asyncio.Event
) -> None:
    """As a good client: each request on a connection of its own, or on one that is kept."""
    kept = await connect(port, secret)
    while not stop.is_set():
        for is_kept in (True, False):
            began_s = time.monotonic()
            client = kept if is_kept else await connect(port, secret)
            answer = await client.call("Produce", **BODY)
            part = answer["responses"][0]["partition_responses"][0]
            told.put_nowait((part["error_code"], time.monotonic() - began_s))
            if not is_kept:
                client.writer.close()
    kept.writer.close()


async def new_key(http: Connection) -> str:
    grants = [{"operation": name, "topics": "**"} for name in ("produce", "consume")]
    body = {"name": "slow", "grants": grants}
    headers = {"Content-Type": "application/json"}
    answer = await http.request("POST", "/v1/api-keys", json.dumps(body).encode(), headers)
    return str(answer.json()["secret"])


async def test_ten_thousand_slow_kafka_connections_keep_no_good_client_out(tmp_path: Path) -> None:
    allow_many_files()
    port = free_port()
    held: list[socket.socket] = []
    telling: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
    told: list[tuple[int, float]] = []
    stop = asyncio.Event()
    bucket, flags = Bucket.directory(tmp_path / "bucket"), ("--kafka-port", str(port))
    async with seb_process(bucket, tmp_path / "data", *flags, "--linger", "10ms") as seb:
        http = Connection(seb.port, seb.admin_key)
        for topic in ("good", "slow", "quiet"):
            assert (await http.request("PUT", f"/v1/topics/{topic}")).status == 201
        for _ in range(RECORDS):
            assert (await http.request("POST", "/v1/topics/slow/records", RECORD)).status == 201
        small, slow = seb.rss_bytes(), slow_requests(await new_key(http))
        http.close()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(GOOD):
                    group.create_task(ask(port, seb.admin_key, telling, stop))
                await asyncio.gather(*(hold(port, slow, held) for _ in range(AT_ONCE)))
                before = telling.qsize()
                while len(told) < before + ASKED_MIN:
                    told.append(await telling.get())
                open_now = open_files(seb)
                stop.set()
        finally:
            for one in held:
                one.close()
        peak = seb.rss_bytes("VmHWM")
        seconds = sorted(took for _, took in told)
        p50_s, p99_s = seconds[len(told) // 2], seconds[len(told) * 99 // 100]
        print(f"{len(held)} slow, {open_now} files, {(peak - small) / 1e6:.0f} MB more")
        print(f"{len(told)} good, {before} meanwhile, p50 {p50_s:.3f} s, p99 {p99_s:.3f} s")
        assert Counter(code for code, _ in told) == {0: len(told)}
        assert open_now > SLOW / 2
        assert peak - small < GROWTH_BYTES_MAX
        assert "Traceback" not in seb.shown


def open_files(seb: SebProcess) -> int:
    return len(list(Path(f"/proc/{seb.process.pid}/fd").iterdir()))

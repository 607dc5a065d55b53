"""A signal under load: what was acknowledged is there, who waits is told, the exit code says it."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from seb_appliance.protocols.mqtt import codec
from seb_appliance.storage.layout import Mode
from tests.crash.arena import TOPICS, directory_arena, rounds, s3_arena
from tests.support.faultproxy import Rule
from tests.support.load import Connection, LostError, pass_time
from tests.support.mqtt_client import Client
from tests.support.mqtt_packets import connect
from tests.support.servers.s3_server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.alone]

GRACE_S = 20.0
TOLD = {"201", "shutting_down", "not sent", "lost"}


@pytest.mark.parametrize(("mode", "number"), [("A", signal.SIGTERM), ("B", signal.SIGINT)])
async def test_a_stop_under_load_loses_nothing_and_exits_0(
    mode: Mode, number: signal.Signals, tmp_path: Path
) -> None:
    async with directory_arena(mode, tmp_path) as arena:
        seb = arena.start(take_over=True)
        await seb.ready()
        await arena.begin(seb)
        for _ in range(rounds(2)):
            seb.send(number)
            stopped_s = time.monotonic()
            assert await seb.ended(GRACE_S + 5) == 0, seb.shown
            assert time.monotonic() - stopped_s < 5
            assert "Traceback" not in seb.shown
            at = len(arena.load.calls)
            seb = arena.start()
            arena.serve_from(seb)
            await seb.ready()
            assert {call.answer for call in arena.load.calls[:at]} <= {*TOLD, ""}
            await arena.load.until_acked(5, seb.port)
        await arena.verdict(seb)
        await arena.stop_and_compare(seb)


async def test_a_stop_ends_long_polls_and_answers_who_waits_for_a_window(tmp_path: Path) -> None:
    async with directory_arena("A", tmp_path) as arena:
        seb = arena.start("local", "--linger", "10s")
        await seb.ready()
        connections = [Connection(seb.port, seb.admin_key) for _ in range(20)]
        path, quiet = (f"/v1/topics/{topic}" for topic in TOPICS)
        for topic in (path, quiet):
            assert (await connections[0].request("PUT", topic, b"{}")).status == 201
        wait = f"{quiet}/records?offset=latest&wait=60s"
        produced = [c.request("POST", f"{path}/records", b"waits") for c in connections[:10]]
        read = [c.request("GET", wait) for c in connections[10:]]
        asked = asyncio.gather(*produced, *read)
        await waiting(seb.port, producers=10, readers=10)
        seb.process.terminate()
        assert await seb.ended() == 0, seb.shown
        answers = await asked
        assert [answer.status for answer in answers] == [201] * 10 + [200] * 10
        for connection in connections:
            connection.close()


async def test_a_stop_closes_a_stretched_window_before_a_port_waits_for_it(tmp_path: Path) -> None:
    port = free_port()
    flags = ("--linger", "auto", "--prices", "aws", "--mqtt-port", str(port))
    async with directory_arena("A", tmp_path) as arena:
        seb = arena.start("local", *flags)
        await seb.ready()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = Client(reader, writer, 5)
        client.send(connect(seb.admin_key))
        assert (await client.packet())[0] >> 4 == codec.CONNACK
        client.publish("a", b"waits")
        await waiting(seb.port, producers=1)
        stopped_s = time.monotonic()
        seb.process.terminate()
        assert (await client.packet())[0] >> 4 == codec.PUBACK
        assert await seb.ended() == 0, seb.shown
        assert time.monotonic() - stopped_s < 10
        writer.close()


async def test_a_kill_in_the_middle_of_a_stop_loses_nothing(tmp_path: Path) -> None:
    async with directory_arena("A", tmp_path) as arena:
        seb = arena.start()
        await seb.ready()
        await arena.begin(seb)
        for i in range(rounds(3)):
            seb.process.terminate()
            await pass_time(0.03 * (i % 4))
            seb.kill()
            seb = arena.start(fresh=i % 2 == 1)
            arena.serve_from(seb)
            await seb.ready()
            await arena.load.until_acked(5, seb.port)
        await arena.verdict(seb)
        await arena.stop_and_compare(seb)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_a_stop_at_once(number: signal.Signals, tmp_path: Path) -> None:
    async with directory_arena("A", tmp_path) as arena:
        seb = arena.start("local", "--store-latency", "300ms")
        await seb.ready()
        waits, other = (Connection(seb.port, seb.admin_key) for _ in range(2))
        path = f"/v1/topics/{TOPICS[0]}/records"
        asked = asyncio.ensure_future(waits.request("POST", path, b"waits"))
        await waiting(seb.port, producers=1)
        seb.send(number)
        while (await other.request("GET", "/readyz")).status == 200:
            await asyncio.sleep(0)
        seb.send(number)
        assert await seb.ended() == -number, seb.shown
        assert "Traceback" not in seb.shown
        with pytest.raises(LostError):
            await asked
        waits.close()
        other.close()


async def test_a_bucket_that_is_away_makes_a_stop_unfinished_and_callers_are_told(
    tmp_path: Path,
) -> None:
    async with s3_arena("A", tmp_path, shutdown_grace="1s", s3_read_timeout="1s") as arena:
        assert arena.proxy is not None
        seb = arena.start()
        await seb.ready()
        await arena.begin(seb)
        arena.proxy.add(Rule("hang", method="PUT"))
        at = len(arena.load.calls)
        await waiting(seb.port, producers=1)
        seb.process.terminate()
        assert await seb.ended(10) == 71, seb.shown
        await arena.load.stop()
        told = {call.answer for call in arena.load.calls[at:]}
        assert told <= {"outcome_unknown", "shutting_down", "not sent", "lost", "201"}
        assert "outcome_unknown" in {call.answer for call in arena.load.calls}
        arena.proxy.clear()
        again = arena.start()
        await again.ready()
        await arena.verdict(again)


async def waiting(port: int, *, producers: int, readers: int = 0) -> None:
    """Until so many wait, as /metrics tells."""
    connection = Connection(port)
    until_s = time.monotonic() + 10
    while True:
        text = (await connection.request("GET", "/metrics")).body.decode()
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        waits = float(lines["seb_pending_bytes"]) >= producers
        if waits and float(lines["seb_waiting_readers"]) >= readers:
            break
        assert time.monotonic() < until_s, text
        await asyncio.sleep(0.01)
    connection.close()

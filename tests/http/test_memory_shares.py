"""What one API key makes the appliance hold in memory leaves room for all others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.errors import ShareExceededError
from tests.http.test_fastlane import consume, produce
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.lanes import Lane
from tests.support.raw_http import RawConnection

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = limits.MIB
SMALL = {"max_pending_bytes": "1MiB", "max_request_bytes": "512KiB", "max_record_bytes": "512KiB"}
# An Idempotency-Key, or a larger read as NDJSON, is not for the fast lane.
LANES = pytest.mark.parametrize("lane", ["fast lane", "application"])


async def key(seb: RunningAppliance, *operations: str, **members: Any) -> str:
    """The token of a new API key."""
    grants = [{"operation": operation} for operation in operations]
    made = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants, **members})
    assert made.status_code == 201, made.text
    return str(made.json()["secret"])


def head(token: str, path: str, length: int, *lines: str) -> bytes:
    start = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}"]
    return "\r\n".join([*start, f"Content-Length: {length}", *lines, "", ""]).encode()


async def served(seb: RunningAppliance, token: str) -> None:
    """Another API key produces and reads, in both lanes, and is not refused."""
    async with seb.client_with(token) as client:
        for headers in ({}, {"idempotency-key": f"{asyncio.get_running_loop().time()}"}):
            answer = await client.post(
                "/v1/topics/others/records", content=b"x" * 1_024, headers=headers
            )
            assert answer.status_code == 201, answer.text
        for query in ("max_records=1&format=batch", "max_records=2000&format=ndjson"):
            answer = await client.get(f"/v1/topics/others/records?{query}")
            assert answer.status_code == 200, answer.text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningAppliance]:
    """An appliance in which 1 MiB may wait for the bucket."""
    async with running_appliance(tmp_path_factory.mktemp("small"), **SMALL) as seb:
        for topic in ("others", "t"):
            await seb.client.put(f"/v1/topics/{topic}", json={})
        yield seb


@contextlib.asynccontextmanager
async def stuck(seb: RunningAppliance) -> AsyncIterator[None]:
    """Nothing gets into the bucket meanwhile."""
    store: Any = seb.appliance.store
    create, go_on = store.create, asyncio.Event()

    async def late(name: str, body: bytes) -> None:
        await go_on.wait()
        await create(name, body)

    store.create = late
    try:
        yield
    finally:
        go_on.set()
        store.create = create
        while not seb.appliance.broker._sequencer.is_idle:
            await asyncio.sleep(0)


# --- bodies ---


@pytest.mark.parametrize("path", ["/v1/transactions", "/v1/topics/t/records"])
async def test_bodies_that_are_only_announced_refuse_nobody_else(
    small: RunningAppliance, path: str
) -> None:
    attacker, victim = (
        await key(small, "consume", "produce"),
        await key(small, "produce", "consume"),
    )
    connections = [await RawConnection.open(small.port) for _ in range(4)]
    for connection in connections:
        await connection.send(head(attacker, path, 500_000, "Seb-Timeout: 1s") + b"{")
    async with asyncio.timeout(30):
        while small.appliance.broker.pending.used < 4:  # the first byte of each
            await asyncio.sleep(0)
    await served(small, victim)
    assert small.appliance.broker.pending.used == 4
    for connection in connections:
        await connection.close()


async def test_nothing_is_read_for_a_key_that_may_neither_produce_nor_commit(
    small: RunningAppliance,
) -> None:
    connection = await RawConnection.open(small.port)
    await connection.send(head(await key(small, "manage"), "/v1/transactions", 100_000))
    answer = await connection.answer()
    assert (answer.status, answer.code) == (403, "forbidden")
    await connection.close()


async def test_bodies_that_came_in_part_fill_the_share_of_their_key_only(
    small: RunningAppliance,
) -> None:
    attacker, victim = await key(small, "produce"), await key(small, "produce", "consume")
    connections = [await RawConnection.open(small.port) for _ in range(3)]
    for connection in connections:
        await connection.send(head(attacker, "/v1/topics/t/records", 300_000) + b"x" * 250_000)
    answer = await connections[-1].answer()
    assert (answer.status, answer.code) == (429, "share_exceeded")
    assert answer.problem["share"] == "pending"
    await served(small, victim)
    for connection in connections:
        await connection.close()
    while small.appliance.broker.pending.used:
        await asyncio.sleep(0)


@LANES
async def test_what_comes_behind_a_request_that_waits_has_a_share_by_address(
    small: RunningAppliance, lane: str
) -> None:
    more = "batch" if lane == "fast lane" else "ndjson"
    waiting = consume(await key(small, "consume"), f"?offset=latest&wait=60s&format={more}")
    strangers = small.appliance.broker.strangers
    async with asyncio.timeout(30):
        connections = [await RawConnection.open(small.port) for _ in range(20)]
        for connection in connections:
            await connection.send(waiting)
        while small.appliance.broker.waiting_readers < len(connections):
            await asyncio.sleep(0)
        for connection in connections:
            with contextlib.suppress(ConnectionError):  # cut while it sends
                await connection.send(waiting * 1_000)
        while len(small.server.server_state.connections) > len(connections) // 2:
            await asyncio.sleep(0)
        assert 0 < strangers.used <= strangers.limit // 2
        await served(small, await key(small, "produce", "consume"))
        for connection in connections:
            await connection.close()
        await small.client.post("/v1/topics/t/records", content=b"the answers to them end")
        while strangers.used:
            await asyncio.sleep(0)


async def at_intervals(connection: RawConnection, pieces: list[bytes]) -> None:
    for piece in pieces:
        await connection.send(piece)
        await asyncio.sleep(0.02)


@LANES
async def test_a_body_that_hardly_moves_ends(
    small: RunningAppliance, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    monkeypatch.setattr(limits, "HTTP_PACE_S", 0.2)
    connection = await RawConnection.open(small.port)
    more = () if lane == "fast lane" else ("Idempotency-Key: slow",)
    token = await key(small, "produce")
    await connection.send(head(token, "/v1/topics/t/records", 60_000, *more))

    trickling = asyncio.create_task(at_intervals(connection, [b"x"] * 60_000))
    async with asyncio.timeout(30):
        answer = await connection.answer()
    trickling.cancel()
    assert (answer.status, answer.code) == (408, "request_timeout")
    assert "slower than 1024 bytes/s" in answer.problem["detail"]
    await connection.close()
    assert small.appliance.broker.pending.used == 0


@LANES
async def test_a_body_that_keeps_its_pace_gets_to_its_end(
    small: RunningAppliance, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    monkeypatch.setattr(limits, "HTTP_PACE_S", 0.2)
    connection = await RawConnection.open(small.port)
    more = () if lane == "fast lane" else ("Idempotency-Key: steady",)
    token = await key(small, "produce")
    await connection.send(head(token, "/v1/topics/t/records", 60_000, *more))
    await at_intervals(connection, [b"x" * 3_000] * 20)  # at 150 kB/s
    assert (await connection.answer()).status == 201
    await connection.close()


async def test_a_log_in_of_strangers_has_a_share_too(small: RunningAppliance) -> None:
    connections = [await RawConnection.open(small.port) for _ in range(3)]
    lines = (
        "POST /ui/login HTTP/1.1\r\nHost: x\r\nContent-Length: 250000\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin\r\n\r\n"
    )
    for connection in connections:
        await connection.send(lines.encode() + b"x" * 240_000)
    # The server reads the connections in any order, so any of them may be the one too many.
    answers = [asyncio.create_task(connection.answer()) for connection in connections]
    done, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    assert {answer.result().status for answer in done} == {429}
    for answer in waiting:
        answer.cancel()
    await served(small, await key(small, "produce", "consume"))
    for connection in connections:
        await connection.close()


# --- what is admitted and waits for the bucket ---


async def test_operations_that_wait_are_charged_to_their_key(small: RunningAppliance) -> None:
    attacker, victim = await key(small, "consume"), await key(small, "consume")
    broker, lease = small.appliance.broker, {"holder": "me", "ttl_ms": 60_000}
    by = Actor(broker.access.authenticate(attacker).api_key_id, "")
    async with small.client_with(attacker) as client, small.client_with(victim) as other:
        async with stuck(small):
            asked = [
                asyncio.create_task(broker.groups.take_lease(f"g{n}", "me", 60_000, by))
                for n in range(200)
            ]
            await asyncio.sleep(0)
            refused = await client.post("/v1/groups/g/lease", json=lease)
            assert (refused.status_code, refused.json()["code"]) == (429, "share_exceeded")
            held = broker.pending.used
            theirs = asyncio.create_task(other.post("/v1/groups/theirs/lease", json=lease))
            while broker.pending.used == held:  # it is admitted, and waits for the bucket
                await asyncio.sleep(0)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert 0 < sum(isinstance(answer, ShareExceededError) for answer in answers) < 150
        assert (await theirs).status_code == 200
    assert broker.pending.used == 0


async def test_small_appends_are_charged_what_they_hold(small: RunningAppliance) -> None:
    attacker, victim = await key(small, "produce"), await key(small, "produce")
    told = []

    class Told:
        def stored(self, *_: object) -> None:
            told.append(True)

        def failed(self, error: Exception) -> None:
            raise error

    broker = small.appliance.broker
    async with stuck(small):
        one, other = (broker.access.authenticate(token) for token in (attacker, victim))
        admitted = 0
        while admitted < 20_000 and broker.appends.append_nowait(one, "t", b"123456", 6, Told()):
            admitted += 1
        assert admitted < 2_000  # of 1 MiB: 500 bytes each at the most
        assert broker.appends.append_nowait(other, "t", b"123456", 6, Told())
        lane = Lane(small)
        assert b'"code":"share_exceeded"' in await lane.answers(produce(attacker))
        lane.leave()
    while len(told) < admitted + 1:
        await asyncio.sleep(0)
    assert broker.pending.used == 0


# --- answers ---


async def slow_reader(seb: RunningAppliance, request: bytes) -> socket.socket:
    """A client that asks and takes nothing, with a small window."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    slow.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(slow, ("127.0.0.1", seb.port))
    await loop.sock_sendall(slow, request)
    return slow


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def large(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningAppliance]:
    """An appliance with a topic of 16 MB, and 16 MiB for answers."""
    folder = tmp_path_factory.mktemp("large")
    async with running_appliance(folder, max_reading_bytes="16MiB") as seb:
        await seb.client.put("/v1/topics/t", json={"compression": "none"})
        for topic in ["others"] + ["t"] * 16:
            await seb.client.post(f"/v1/topics/{topic}/records", content=b"z" * 1_000_000)
        await seb.client.get("/v1/topics/t/records?max_bytes=16MiB&format=batch")  # in memory
        yield seb


@LANES
async def test_readers_that_take_nothing_refuse_nobody_else_and_are_cut_off(
    large: RunningAppliance, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    monkeypatch.setattr(limits, "HTTP_PACE_S", 1)
    attacker, victim = await key(large, "consume"), await key(large, "produce", "consume")
    request = consume(attacker, "?max_bytes=3900KiB&max_records=1000")
    if lane == "application":
        request = request.replace(b"application/vnd.seb.batch", b"application/x-ndjson")
    slow = [await slow_reader(large, request) for _ in range(6)]
    reading = large.appliance.broker.reading
    async with asyncio.timeout(30):
        while reading.used < 3 * MIB:
            await asyncio.sleep(0)
        await served(large, victim)
        while reading.used:
            await asyncio.sleep(0)
    for connection in slow:
        connection.close()


async def one_byte(slow: socket.socket) -> None:
    await asyncio.get_running_loop().sock_recv(slow, 1)
    await asyncio.sleep(0.01)


async def test_a_reader_that_takes_a_little_all_the_time_is_cut_off_below_the_pace(
    large: RunningAppliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_PACE_S", 0.5)
    request = consume(large.admin_key, "?max_bytes=3900KiB") * 2  # the kernel may take the first
    slow = await slow_reader(large, request)
    reading = large.appliance.broker.reading
    async with asyncio.timeout(30):
        while not reading.used:
            await asyncio.sleep(0)
        while reading.used:
            await one_byte(slow)
    slow.close()


async def test_strangers_of_many_networks_refuse_nobody_with_an_api_key(tmp_path):
    """The body of a delivery is held before anybody knows whether it is one."""
    async with running_appliance(tmp_path / "seb", **SMALL, trusted_proxies="127.0.0.1") as seb:
        await seb.client.put("/v1/topics/others", json={})
        strangers = seb.appliance.broker.strangers
        held = []
        for number in range(90):
            connection = await RawConnection.open(seb.port)
            address = f"2001:db8:{number:x}::{number:x}"
            lines = (f"Content-Length: {strangers.limit // 100}", f"X-Forwarded-For: {address}")
            start = "\r\n".join(["POST /v1/inlets/none HTTP/1.1", "Host: x", *lines, "", ""])
            await connection.send(start.encode() + bytes(strangers.limit // 101))
            held.append(connection)
        async with asyncio.timeout(30):
            while strangers.used < strangers.limit // 101 * 90:
                await asyncio.sleep(0)
        assert not seb.appliance.broker.pending.used
        await served(seb, await key(seb, "produce", "consume"))
        for connection in held:
            await connection.close()


async def test_addresses_of_one_network_share_what_strangers_have(tmp_path):
    async with running_appliance(tmp_path / "seb", **SMALL, trusted_proxies="127.0.0.1") as seb:
        strangers = seb.appliance.broker.strangers

        async def deliver(address: str) -> int:
            async with seb.client_with(None) as client:
                headers = {"x-forwarded-for": address}
                body = bytes(strangers.limit // 4)
                answer = await client.post("/v1/inlets/none", content=body, headers=headers)
                return answer.status_code

        with strangers.reserve("2001:db8::/64", strangers.limit // 3):
            assert await deliver("2001:db8::7") == 429
            assert await deliver("2001:db8:1::7") == 401

"""Memory of what clients of the MQTT and Kafka ports are sent and do not take."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.protocols.sockets import limits as socket_limits
from tests.support.mqtt_client import connected, serving
from tests.support.mqtt_packets import connect, subscribe

pytestmark = pytest.mark.asyncio(loop_scope="module")
LARGE = b"x" * 500_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("mqtt")) as both:
        yield both


@pytest.fixture
def room(running, monkeypatch):
    monkeypatch.setattr(running[1].unsent, "limit", 4 * limits.MIB)
    return running[1].unsent


async def key(running):
    grants = [{"operation": one, "topics": "**"} for one in ("produce", "consume")]
    answer = await running[0].client.post("/v1/api-keys", json={"name": "k", "grants": grants})
    return answer.json()["secret"], answer.json()["api_key_id"]


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def deaf_clients(running, secret, count, options=1):
    """They subscribe, and take nothing."""
    loop, sockets = asyncio.get_running_loop(), list[socket.socket]()
    before = running[1].dispatcher.count
    try:
        for number in range(count):
            one = socket.socket()
            sockets.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            await loop.sock_connect(one, ("127.0.0.1", running[1].port))
            await loop.sock_sendall(
                one, connect(secret, client_id=f"deaf-{number}") + subscribe("#", options)
            )
        await until(lambda: running[1].dispatcher.count == before + count)
        yield sockets
    finally:
        for one in sockets:
            one.close()
        await until(lambda: not any(one.client_id[:4] == "deaf" for one in running[1]._all))


async def fill(loud, room, owner):
    for _ in range(40):
        await loud.stores("fill", LARGE)
        if not room.has_room(owner, len(LARGE)):
            return
    raise AssertionError("it is never full")


@contextlib.asynccontextmanager
async def full_share(running, room):
    """An API key whose share is full: somebody who writes, a client of the key that reads, and the
    id of the key."""
    greedy, owner = await key(running)
    async with (
        connected(running, client_id="loud") as loud,
        connected(running, client_id="reader", password=greedy) as reader,
        deaf_clients(running, greedy, 30),
    ):
        await fill(loud, room, owner)
        yield loud, reader, owner


async def test_clients_of_an_api_key_that_read_nothing_take_no_more_than_its_share(running, room):
    greedy, owner = await key(running)
    good, _ = await key(running)
    async with (
        connected(running, client_id="loud", password=good) as loud,
        connected(running, client_id="reader", password=good) as reader,
        deaf_clients(running, greedy, 30),
    ):
        await reader.subscribe("#", 0)
        for _ in range(20):
            await loud.stores("t", LARGE)
            assert (await reader.message()).payload == LARGE
        unsent = sum(one.transport.get_write_buffer_size() for one in running[1]._all)
        assert unsent < room.limit // 2 + len(LARGE) + 30 * 16 * limits.KIB
        assert len(LARGE) < room.held_by(owner) < room.limit // 2 + len(LARGE)
    await until(lambda: room.used == 0)


async def test_a_client_that_reads_gets_small_messages_whatever_others_of_its_key_hold(
    running, room
):
    async with full_share(running, room) as (loud, reader, _):
        await reader.subscribe("small", 0)
        for number in range(100):
            await loud.stores("small", b"%d" % number * 1_000)
        for number in range(100):
            assert (await reader.message()).payload == b"%d" % number * 1_000


async def test_a_message_that_must_not_be_lost_waits_until_others_of_the_key_have_left(
    running, room
):
    greedy, owner = await key(running)
    async with (
        connected(running, client_id="loud") as loud,
        connected(running, client_id="reader", password=greedy) as reader,
    ):
        async with deaf_clients(running, greedy, 30):
            await fill(loud, room, owner)
            await reader.subscribe("kept", 1)
            await loud.stores("kept", LARGE)
            await loud.stores("kept", b"small")
            assert await reader.pong()
        assert [(await reader.message()).payload for _ in range(2)] == [LARGE, b"small"]


async def test_who_has_taken_nothing_for_long_makes_room_for_a_client_of_its_key_that_reads(
    running, room, monkeypatch
):
    async with full_share(running, room) as (loud, reader, owner):
        await reader.subscribe("large", 0)
        monkeypatch.setattr(socket_limits, "NO_ROOM_S_MAX", 0)
        open_before = len(running[1]._all)
        await loud.stores("large", LARGE)
        await until(lambda: room.has_room(owner, len(LARGE)))
        assert len(running[1]._all) < open_before
        await loud.stores("large", LARGE)
        assert (await reader.message()).payload == LARGE

"""Handshakes of TLS at the ports of MQTT and Kafka, which share how they listen."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import pytest_asyncio

from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.listening import tls_context
from tests.support.certificates import make_certificate
from tests.support.mqtt_client import Client, serving
from tests.support.mqtt_packets import connect


@pytest_asyncio.fixture
async def running(tmp_path):
    make_certificate(tmp_path / "server.pem")
    tls = tls_context(tmp_path / "server.pem", None, "mqtt_tls_certificate")
    async with serving(tmp_path / "data", tls=tls) as both:
        yield both


@contextlib.asynccontextmanager
async def opened(running, tls=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", running[1].port, ssl=tls)
    try:
        yield Client(reader, writer, 5)
    finally:
        writer.close()


async def served(running, client):
    client.send(connect(running[0].admin_key, 5, "good"))
    return (await client.packet())[0] == 0x20


def trusting():
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


async def shaking(running, count):
    """So many are under way."""
    async with asyncio.timeout(20):
        while running[1]._connections.open != count:
            await asyncio.sleep(0.001)


async def test_handshakes_that_do_not_begin_make_room_for_others(running, monkeypatch):
    monkeypatch.setattr(running[1]._connections, "_most", 2)
    async with opened(running) as first, opened(running) as second:
        await shaking(running, 2)
        async with opened(running, trusting()) as good:
            assert await served(running, good)
            assert await first.packet() == (0, b"")
            assert running[1]._connections.open == 2
            async with opened(running, trusting()) as late:
                assert await second.packet() == (0, b"")
                late.send(codec.packet(codec.PINGREQ, b""))
                assert await late.packet() == (0, b"")  # its first packet is no CONNECT
            assert await good.pong()
    await shaking(running, 0)


async def test_a_handshake_that_fails_or_takes_too_long_is_forgotten(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "CONNECT_S_MAX", 0.05)
    async with opened(running) as silent, opened(running) as plain:
        plain.send(connect(running[0].admin_key, 5, "plain"))
        assert await plain.packet() == (0, b"")
        assert await silent.packet() == (0, b"")
    await shaking(running, 0)


async def test_what_comes_with_the_end_of_the_handshake_is_read(running):
    """A client of TLS 1.3 sends its first packet before it knows that the handshake is done."""
    async with opened(running, trusting()) as good:
        assert await served(running, good)


async def test_a_stop_ends_handshakes(running):
    async with opened(running) as silent:
        await shaking(running, 1)
        running[1]._stop_listening()
        assert await silent.packet() == (0, b"")
    await shaking(running, 0)

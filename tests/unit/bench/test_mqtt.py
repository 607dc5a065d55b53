"""The checks of `seb bench mqtt`: a broker that makes mistakes is told so."""

from __future__ import annotations

import asyncio
import struct

import pytest

from seb_appliance.bench.connecting import BenchError
from seb_appliance.bench.mqtt.measuring import Broker, Work, measure
from seb_appliance.protocols.mqtt import codec

pytestmark = pytest.mark.asyncio


class FakeBroker(asyncio.Protocol):
    """Passes messages on to all subscribers; `mistake`: what it does with the tenth message."""

    def __init__(self, mistake, subscribers):
        self.mistake, self.subscribers = mistake, subscribers
        self.framer, self.count = codec.Framer(), 0
        self.framer.largest = 10_000

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.framer.feed(data)
        while (found := self.framer.next()) is not None:
            first, body = found
            if first >> 4 == codec.CONNECT:
                self.transport.write(b"\x20\2\0" + bytes([self.mistake == "refuse"]))
            elif first >> 4 == codec.SUBSCRIBE:
                self.subscribers.append(self.transport)
                self.transport.write(b"\x90\3" + body[:2] + body[-1:])
            elif first >> 4 == codec.PUBLISH:
                self.publish(first, codec.read_publish(first & 15, body, 4))

    def publish(self, first, message):
        self.count += 1
        if message.qos:
            self.transport.write(struct.pack(">BBH", 0x40, 2, message.packet_id))
        is_tenth = self.count == 10
        if is_tenth and self.mistake == "close":
            self.transport.abort()
        times = {"lose": 0, "repeat": 2}.get(self.mistake, 1) if is_tenth else 1
        for subscriber in self.subscribers:
            for _ in range(times):
                subscriber.write(codec.write_publish(message, 4))


async def measured(mistake, subscribers=2, qos=1):
    connected = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: FakeBroker(mistake, connected), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    work = Work(
        shape="x",
        publishers=2,
        subscribers=subscribers,
        qos=qos,
        payload_bytes=20,
        in_flight=3,
        duration_s=0.05,
    )
    try:
        return await measure(work, Broker("fake", "127.0.0.1", port, "secret"), drain_s=0.1)
    finally:
        server.close()


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_broker_without_mistakes_is_right(qos):
    row = await measured("none", qos=qos)
    assert (row.wrong, row.latency.samples > 0) == (0, True)
    assert row.out_per_s == pytest.approx(2 * row.in_per_s, rel=0.2)


@pytest.mark.parametrize("mistake", ["lose", "repeat"])
@pytest.mark.parametrize("qos", [0, 1])
async def test_lost_and_repeated_messages_are_counted(mistake, qos):
    assert (await measured(mistake, qos=qos)).wrong > 0


async def test_a_broker_that_refuses_or_goes_away_is_told():
    with pytest.raises(BenchError, match="refused"):
        await measured("refuse")
    with pytest.raises(BenchError, match="ended"):
        await measured("close")


async def test_where_nobody_answers_it_is_told():
    work = Work(
        shape="x", publishers=1, subscribers=0, qos=1, payload_bytes=20, in_flight=1, duration_s=1
    )
    with pytest.raises(BenchError) as caught:
        await measure(work, Broker("none", "127.0.0.1", 1, None))
    assert not caught.value.reachable

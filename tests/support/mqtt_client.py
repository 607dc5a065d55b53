"""A raw MQTT client: it sends any bytes, and reads packets one by one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any

from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt.listening import Mqtt
from seb_appliance.protocols.mqtt.messages.routes import parse
from seb_appliance.protocols.sockets.connected import connections_of
from tests.support.appliance import running_appliance
from tests.support.mqtt_packets import connect, subscribe


class Client:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int
    ) -> None:
        self.reader, self.writer, self.version = reader, writer, version
        self._early = deque[tuple[int, bytes]]()

    async def subscribe(self, topic_filter: str, options: int = 1) -> int:
        """The reason code. A server may send messages before it."""
        self.send(subscribe(topic_filter, options, self.version))
        first, body = await self._next()
        while first >> 4 == codec.PUBLISH:
            self._early.append((first, body))
            first, body = await self._next()
        assert first == 0x90, (first, body)
        return body[-1]

    async def pong(self) -> bool:
        """Whether the next packet answers this ping: nothing was sent before."""
        self.send(codec.packet(codec.PINGREQ, b""))
        return (await self.packet())[0] == 0xD0

    async def stores(self, topic: str, payload: bytes, **given: Any) -> None:
        """Publish it with QoS 1 and wait for its PUBACK."""
        self.publish(topic, payload, **given)
        first, body = await self.packet()
        assert first == 0x40, (first, body)
        assert len(body) < 3, body

    def send(self, *packets: bytes) -> None:
        self.writer.write(b"".join(packets))

    def publish(self, topic: str, payload: bytes, qos: int = 1, packet_id: int = 1, **given: Any):
        properties = given.pop("properties", {})
        message = codec.Publish(topic, payload, qos, packet_id=packet_id, properties=properties)
        message.retain = given.pop("retain", False)
        self.send(codec.write_publish(message, self.version, **given))

    async def packet(self) -> tuple[int, bytes]:
        """First byte and body of the next one; (0, b"") at the end of the connection."""
        return self._early.popleft() if self._early else await self._next()

    async def _next(self) -> tuple[int, bytes]:
        async with asyncio.timeout(10):
            try:
                first = (await self.reader.readexactly(1))[0]
                length, shift = 0, 0
                while True:
                    byte = (await self.reader.readexactly(1))[0]
                    length |= (byte & 127) << shift
                    shift += 7
                    if byte < 128:
                        return first, await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return 0, b""

    async def message(self) -> codec.Publish:
        first, body = await self.packet()
        assert first >> 4 == codec.PUBLISH, (first, body)
        # what a server sends has properties that a client's PUBLISH may not have
        reader = codec.Reader(body)
        topic = reader.text()
        packet_id = reader.short() if first & 6 else 0
        properties = read_any(reader) if self.version == 5 else {}
        return codec.Publish(
            topic, body[reader.at :], first >> 1 & 3, bool(first & 1), packet_id, properties
        )


def read_any(reader: codec.Reader) -> dict[str, Any]:
    """Properties in any packet."""
    inside, found = codec.Reader(reader.take(reader.number())), dict[str, Any]()
    while not inside.is_done:
        name, kind, _ = codec.PROPERTIES[inside.byte()]
        value = kind[0](inside)
        if name in ("user_properties", "subscription_id"):
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found


@contextlib.asynccontextmanager
async def serving(data, routes=None, trusted=None, tls=None, **given):
    """A running appliance and its MQTT port. `routes`: as the setting. `trusted`, `tls`: as of
    `Mqtt`."""
    async with running_appliance(data, **given) as seb:
        address, routed = (["127.0.0.1"], 0), parse(routes)
        broker = seb.appliance.broker
        mqtt = Mqtt(broker, address, "mqtt", routes=routed, trusted=trusted, tls=tls)
        await mqtt.start()
        connections_of(seb.appliance.beside).add(mqtt)
        try:
            yield seb, mqtt
        finally:
            await mqtt.stop()


@contextlib.asynccontextmanager
async def raw(running, version=5):
    reader, writer = await asyncio.open_connection("127.0.0.1", running[1].port)
    try:
        yield Client(reader, writer, version)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def connected(running, version=5, client_id="c", password=None, **given):
    """`present`: whether CONNACK said that there is a session."""
    async with raw(running, version) as client:
        client.send(connect(password or running[0].admin_key, version, client_id, **given))
        first, body = await client.packet()
        assert (first, body[1]) == (0x20, 0)
        client.present = bool(body[0])
        yield client

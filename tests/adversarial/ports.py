"""What a client of a port may send that costs most, and a good client beside it."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from seb_appliance import limits
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.syslog import limits as syslog_limits
from tests.support.kafka_client import NAMED as APIS
from tests.support.kafka_client import framed, head, request
from tests.support.mqtt_packets import connect
from tests.unit.protocols.kafka.record_sets import Sent, made

ROUTED: Final = 900  # topics of MQTT, by the route `r/#=*`
_READ: Final = 256 * limits.KIB  # what the event loop reads at once, at most
_ASKED: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: seb\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


@dataclass(frozen=True)
class Ports:
    http: int
    mqtt: int
    kafka: int
    syslog: int
    key: str


def _frame(opcode: int, *, final: bool = True) -> bytes:
    return bytes((final << 7 | opcode, 0x80)) + bytes(4)


def _filters(count: int) -> bytes:
    each = b"".join(codec.text(f"r/{i}/+/#") + b"\1" for i in range(count))
    return codec.packet(codec.SUBSCRIBE, b"\0\1\0" + each, 2)


def _publish(topic: str, **given: object) -> bytes:
    message = codec.Publish(topic, b"x", 1, packet_id=1, properties=given)
    return codec.write_publish(message, codec.V5)


def mqtt_attacks(key: str) -> Iterator[tuple[str, bytes]]:
    """After CONNECT, but for the first."""
    greeting = connect(key, 5, "hostile")
    wide, deep = codec.text("+/" * 31 + "#") + b"\1", codec.text("/" * 65_535) + b"\1"
    most = mqtt_limits.FILTERS_MAX
    yield "a SUBSCRIBE of 128 KiB before its key", codec.packet(codec.SUBSCRIBE, bytes(1 << 17), 2)
    yield "a thousand filters", greeting + _filters(most)
    yield (
        "a thousand filters of all topics",
        greeting + codec.packet(codec.SUBSCRIBE, b"\0\1\0" + wide * most, 2),
    )
    none = b"".join(codec.text(f"z/{i}/+") + b"\1" for i in range(60))
    yield (
        "all topics behind filters of none",
        greeting + codec.packet(codec.SUBSCRIBE, b"\0\1\0" + none + codec.text("#") + b"\1", 2),
    )
    yield "filters of 64 KiB", greeting + codec.packet(codec.SUBSCRIBE, b"\0\1\0" + deep * 15, 2)
    small = codec.text("a") + b"\1"
    yield (
        "1 MiB of filters",
        greeting + codec.packet(codec.SUBSCRIBE, b"\0\1\0" + small * 262_000, 2),
    )
    yield (
        "1 MiB of filters to end",
        greeting + codec.packet(codec.UNSUBSCRIBE, b"\0\1\0" + codec.text("a") * 349_000, 2),
    )
    users = [(f"h{i}", "v" * 30) for i in range(200)]
    yield "properties", greeting + _publish("r/1", user_properties=users) * 20
    yield "pings", greeting + codec.packet(codec.PINGREQ, b"") * (_READ // 2)
    yield "unknown acknowledgements", greeting + codec.write_ack(codec.PUBREL, 7, 5) * (_READ // 4)
    yield (
        "topics of 32 levels",
        greeting + b"".join(_publish("/".join([f"{i}", *["a"] * 31])) for i in range(900)),
    )


def websocket_attacks() -> Iterator[tuple[str, bytes]]:
    """Without an API key."""
    yield "empty frames", _ASKED + _frame(2) * (_READ // 6)
    yield "pings in frames", _ASKED + _frame(9) * (_READ // 6)
    yield "fragments", _ASKED + _frame(2, final=False) + _frame(0, final=False) * (_READ // 6)
    large = bytes((0x82, 0xFF)) + struct.pack(">Q", 1 << 20) + bytes(4) + bytes(1 << 20)
    yield "a frame of 1 MiB", _ASKED + large


def http_attacks() -> Iterator[tuple[str, bytes]]:
    """Without an API key."""
    host = b"Host: x\r\n"
    asked = b"GET /healthz HTTP/1.1\r\n" + host
    yield "requests behind each other", (asked + b"\r\n") * (_READ // 34)
    offered = b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    yield "upgrades behind each other", (asked + offered) * (_READ // 74)
    yield "headers of one byte", (asked + b"a:\r\n" * 3_000 + b"\r\n") * 20
    chunked = b"POST /v1/inlets/none HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n"
    yield "chunks of one byte", chunked + b"1\r\nx\r\n" * _READ + b"0\r\n\r\n"
    yield "empty lines before a request", b"\r\n" * _READ


@cache
def _small(count: int, codec_of: int) -> bytes:
    """Records of nothing: 64 KB, or 256 KB once they are inflated."""
    return made(*[Sent(b"")] * count, codec=codec_of)


def kafka_attacks(key: str) -> Iterator[tuple[str, bytes]]:
    login = request("SaslHandshake", 1, mechanism="PLAIN")
    login += request("SaslAuthenticate", 2, auth_bytes=b"\0user\0" + key.encode())
    most = kafka_limits.MESSAGE_ELEMENTS_MAX
    topics = [{"topic_id": bytes(16), "name": f"t{i}"} for i in range(most - 1)]
    yield "metadata of many topics", login + request("Metadata", 12, topics=topics)
    yield "many small requests", login + request("ApiVersions", 0) * 20_000
    api = APIS["Metadata"]
    long = head(api, 1) + struct.pack(">i", 2**31 - 1)
    yield "an array that says two thousand million", login + framed(long + bytes(1 << 19))
    yield "requests without a key", request("ApiVersions", 0) * 20_000
    for name, count, codec_of in (("small records", 7_000, 0), ("small packed ones", 28_000, 1)):
        parts = [{"index": 0, "records": _small(count, codec_of)}] * 31
        topics = [{"name": "r.1.a", "partition_data": parts}]
        given = {"transactional_id": None, "acks": 1, "timeout_ms": 5_000, "topic_data": topics}
        yield f"{name} for 31 partitions", login + request("Produce", **given)


def syslog_attacks() -> Iterator[tuple[str, bytes]]:
    yield "counted messages of one byte", b"1 x" * 40_000
    yield "lines of one byte", b"x\n" * 60_000
    yield "empty lines", b"\r\n" * 200_000
    yield "carriage returns", b"\r" * syslog_limits.BYTES_MAX
    header = b"<1>1 2026-01-01T00:00:00.000001Z " + b"!" * 48 + b" a b c x\n"
    yield "headers", header * 3_000
    yield "almost a header", (b"<1>1 - " + b"!" * 255 + b" " + b"!" * 49 + b"\n") * 800


def all_attacks(ports: Ports) -> Iterator[tuple[str, int, bytes]]:
    """Name, port and what is sent."""
    for protocol, port, attacks in (
        ("http", ports.http, http_attacks()),
        ("mqtt", ports.mqtt, mqtt_attacks(ports.key)),
        ("websocket", ports.http, websocket_attacks()),
        ("kafka", ports.kafka, kafka_attacks(ports.key)),
        ("syslog", ports.syslog, syslog_attacks()),
    ):
        for name, sent in attacks:
            yield f"{protocol}: {name}", port, sent


async def send(port: int, data: bytes, seconds: float = 10.0) -> None:
    """All of it, and take what is answered, until the appliance has ended the connection or has
    nothing more to say for a moment."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def take() -> None:
        while await asyncio.wait_for(reader.read(1 << 16), 0.5):
            pass

    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(seconds):
            writer.write(data)
            await asyncio.gather(writer.drain(), take())
    writer.close()


@contextlib.asynccontextmanager
async def good_client(ports: Ports) -> AsyncIterator[list[float]]:
    """Pings by MQTT all the time. How long each was on its way, in ms."""
    took_ms = list[float]()
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.mqtt)
    writer.write(connect(ports.key, 5, "good"))
    assert (await reader.read(1 << 12))[:1] == b"\x20"
    loop = asyncio.get_running_loop()

    async def ping() -> None:
        while True:
            began_s = loop.time()
            writer.write(codec.packet(codec.PINGREQ, b""))
            assert await reader.readexactly(2) == b"\xd0\0"
            took_ms.append((loop.time() - began_s) * 1_000)

    pinging = asyncio.create_task(ping())
    try:
        yield took_ms
        assert not pinging.done(), "the good client was ended"
    finally:
        pinging.cancel()
        await asyncio.gather(pinging, return_exceptions=True)
        writer.close()

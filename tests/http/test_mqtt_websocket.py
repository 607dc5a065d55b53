"""MQTT by WebSocket on the HTTP port."""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import ip_network

import pytest
import pytest_asyncio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.websocket import carrying
from tests.http.test_connections import listed
from tests.support.mqtt_client import Client, connected, serving
from tests.support.mqtt_packets import connect, subscribe

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/mqtt"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[True, False])
async def running(tmp_path_factory, request):
    async with serving(tmp_path_factory.mktemp("mqtt"), fast_lane=request.param) as (seb, mqtt):
        proxies = [ip_network("127.0.0.1")]
        seb.server.upgrades[PATH.encode()] = carrying(mqtt.connection, "mqtt", proxies)
        yield seb, mqtt


class WebSocketClient:
    """`read` and `readexactly` as of a stream of the bytes of binary messages."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.frames = WSConnection(ConnectionType.CLIENT)
        self.events, self.bytes = [], b""

    def send(self, event):
        self.writer.write(self.frames.send(event))

    def write(self, data):
        self.send(BytesMessage(data))

    async def event(self):
        async with asyncio.timeout(10):
            while not self.events:
                data = await self.reader.read(65_536)
                self.frames.receive_data(data or None)
                self.events += self.frames.events()
        return self.events.pop(0)

    async def readexactly(self, size):
        while len(self.bytes) < size:
            event = await self.event()
            if not isinstance(event, BytesMessage):
                raise asyncio.IncompleteReadError(self.bytes, size)
            self.bytes += event.data
        found, self.bytes = self.bytes[:size], self.bytes[size:]
        return found


@contextlib.asynccontextmanager
async def opened(running, target=PATH, subprotocols=("mqtt",), headers=()):
    reader, writer = await asyncio.open_connection("127.0.0.1", running[0].port)
    client = WebSocketClient(reader, writer)
    client.send(
        Request(host="h", target=target, subprotocols=list(subprotocols), extra_headers=[*headers])
    )
    try:
        yield client
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def by_websocket(running, client_id="ws", version=5, **given):
    async with opened(running, **given) as stream:
        accepted = await stream.event()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == "mqtt"
        client = Client(stream, stream, version)
        client.send(connect(running[0].admin_key, version, client_id))
        assert (await client.packet())[0] == 0x20
        yield client


@pytest.mark.parametrize("version", [4, 5])
async def test_messages_go_both_ways_and_to_clients_of_the_port(running, version):
    async with (
        by_websocket(running, version=version) as browser,
        connected(running, client_id="tcp") as device,
    ):
        await browser.subscribe("a/#")
        await device.subscribe("a/#")
        await browser.stores("a/1", b"from the browser")
        for client in (browser, device):
            assert (await client.message()).payload == b"from the browser"
        device.publish("a/2", b"x" * 300_000)
        assert (await browser.message()).payload == b"x" * 300_000


async def test_packets_may_be_cut_and_joined_in_messages(running):
    async with by_websocket(running) as client:
        data = subscribe("cut") + codec.packet(codec.PINGREQ, b"")
        for byte in data:
            client.writer.write(bytes([byte]))
        assert (await client.packet())[0] == 0x90
        assert (await client.packet())[0] == 0xD0
        client.send(subscribe("joined"), codec.packet(codec.PINGREQ, b""))
        assert (await client.packet())[0] == 0x90
        assert (await client.packet())[0] == 0xD0


async def test_what_follows_the_request_at_once_is_taken(running):
    reader, writer = await asyncio.open_connection("127.0.0.1", running[0].port)
    client = WebSocketClient(reader, writer)
    request = client.frames.send(Request(host="h", target=PATH, subprotocols=["mqtt"]))
    other = WSConnection(ConnectionType.CLIENT)  # that is further
    other.send(Request(host="h", target=PATH, subprotocols=["mqtt"]))
    key = request.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
    assert key
    mqtt = connect(running[0].admin_key, 5, "early")
    assert len(mqtt) < 126
    frame = bytes((0x82, 0x80 | len(mqtt), 0, 0, 0, 0)) + mqtt
    writer.write(request + frame)
    assert isinstance(await client.event(), AcceptConnection)
    assert (await Client(client, client, 5).packet())[0] == 0x20
    writer.close()


async def test_many_small_frames_are_taken_in_more_than_one_turn_and_in_order(running):
    async with by_websocket(running) as client:
        packets = subscribe("small") + codec.packet(codec.PINGREQ, b"") * 400
        client.writer.writer.write(
            b"".join(bytes((0x82, 0x81, 0, 0, 0, 0, byte)) for byte in packets)
        )
        assert (await client.packet())[0] == 0x90
        for _ in range(400):
            assert (await client.packet())[0] == 0xD0


async def test_pings_are_answered_and_text_ends_the_connection(running):
    async with by_websocket(running) as client:
        client.writer.send(Ping(b"are you there"))
        event = await client.writer.event()
        assert (type(event), bytes(event.payload)) == (Pong, b"are you there")
        client.writer.send(TextMessage("hello"))
        event = await client.writer.event()
        assert (type(event), event.code) == (CloseConnection, 1003)


async def test_a_goodbye_is_answered_and_ends_the_connection(running):
    async with by_websocket(running, client_id="leaves") as client:
        client.writer.send(CloseConnection(1000))
        assert isinstance(await client.writer.event(), CloseConnection)
        while "leaves" in await listed(running):
            await asyncio.sleep(0)


async def test_the_appliance_says_goodbye(running):
    async with by_websocket(running, client_id="ended") as client:
        number = (await listed(running))["ended"]["connection"]
        assert (await running[0].client.delete(f"/v1/connections/{number}")).is_success
        assert (await client.packet())[0] == 0xE0
        event = await client.writer.event()
        assert (type(event), event.code) == (CloseConnection, 1000)


async def test_a_frame_that_is_none_ends_the_connection(running):
    async with by_websocket(running) as client:
        client.writer.writer.write(b"\xff" * 20)
        event = await client.writer.event()
        assert (type(event), event.code) == (CloseConnection, 1002)


@pytest.mark.parametrize(
    ("subprotocols", "headers"),
    [((), ()), (("other",), ()), (("mqtt",), [(b"Sec-WebSocket-Extensions", b"\xff")])],
)
async def test_a_request_for_something_else_is_told_so(running, subprotocols, headers):
    async with opened(running, subprotocols=subprotocols, headers=headers) as client:
        event = await client.event()
        if isinstance(event, AcceptConnection):  # an extension that is not known is left out
            assert headers
            return
        assert (type(event), event.status_code) == (RejectConnection, 400)
        assert b"WebSocket" in (await client.event()).data


async def test_on_other_paths_an_upgrade_is_not_taken(running):
    async with opened(running, target="/healthz") as client:
        event = await client.event()
        assert (type(event), event.status_code) == (RejectConnection, 200)
        assert isinstance(await client.event(), RejectData)


async def test_the_address_is_the_one_that_the_proxy_says(running):
    headers = [(b"X-Forwarded-For", b"192.0.2.9")]
    async with by_websocket(running, client_id="far", headers=headers):
        assert (await listed(running))["far"]["address"] == "192.0.2.9"


async def test_a_connection_that_answered_before_is_not_closed_as_idle(running):
    reader, writer = await asyncio.open_connection("127.0.0.1", running[0].port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"200" in await reader.readuntil(b"\r\n\r\n")
    before = len(running[0].server.server_state.connections)
    client = WebSocketClient(reader, writer)
    client.send(Request(host="h", target=PATH, subprotocols=["mqtt"]))
    while b"101" not in await reader.readuntil(b"\r\n"):
        pass
    assert len(running[0].server.server_state.connections) == before - 1
    writer.close()


async def test_a_subscriber_that_takes_nothing_is_bounded(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "UNSENT_BYTES_MAX", 10_000)
    async with (
        by_websocket(running, client_id="deaf") as deaf,
        connected(running, client_id="loud") as loud,
    ):
        await deaf.subscribe("loud")
        for _ in range(30):
            await loud.stores("loud", b"x" * 500_000)
        connection = next(one for one in running[1]._all if one.client_id == "deaf")
        assert connection.transport.get_write_buffer_size() < 1_500_000
        assert connection.outgoing.waiting < 30


async def test_no_connection_is_taken_while_the_appliance_stops(running, monkeypatch):
    monkeypatch.setattr(running[1], "_is_stopping", True)
    async with opened(running) as client:
        assert isinstance(await client.event(), AcceptConnection)
        event = await client.event()
        assert (type(event), event.code) == (CloseConnection, 1000)

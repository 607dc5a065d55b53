"""MQTT by proxies that are trusted with the client's address and its certificate."""

from __future__ import annotations

import contextlib
from ipaddress import ip_network

import pytest
import pytest_asyncio

from seb_appliance.errors import ConfigurationError
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt.codec import Code
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.proxy_protocol import Trusted
from seb_appliance.protocols.sockets.websocket import carrying
from tests.http.test_connections import listed
from tests.http.test_mqtt_websocket import opened
from tests.support.appliance import running_appliance
from tests.support.mqtt_client import Client, raw, serving
from tests.support.mqtt_packets import connect, proxy_header, tls_value

pytestmark = pytest.mark.asyncio(loop_scope="module")
LOCAL = [ip_network("127.0.0.1")]
HEADER = "Client-Subject"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    trusted = Trusted(LOCAL, with_certificate=True)
    async with serving(tmp_path_factory.mktemp("mqtt"), trusted=trusted) as (seb, mqtt):
        carried = carrying(mqtt.connection, "mqtt", LOCAL, HEADER)
        seb.server.upgrades[b"/mqtt"] = carried
        yield seb, mqtt


async def device(running, **more):
    """The id of a new API key, which may publish below `a`."""
    grants = [{"operation": "produce", "topics": "mqtt.a.**"}]
    body = {"name": "device", "grants": grants, **more}
    answer = await running[0].client.post("/v1/api-keys", json=body)
    return answer.json()["api_key_id"]


async def connack(client, password=None, client_id="c"):
    """Its reason code; None at the end of the connection."""
    client.send(connect(password, 5, client_id))
    first, body = await client.packet()
    return body[1] if first else None


@contextlib.asynccontextmanager
async def by_proxy(running, header):
    async with raw(running) as client:
        client.send(header)
        yield client


@contextlib.asynccontextmanager
async def by_websocket(running, *subjects, forwarded=True):
    headers = [(HEADER.encode(), one.encode()) for one in subjects]
    if forwarded:
        headers.append((b"X-Forwarded-For", b"192.0.2.9"))
    async with opened(running, headers=headers) as stream:
        await stream.event()
        yield Client(stream, stream, 5)


async def ways(running, api_key_id):
    """Both ways of passing this on."""
    return (
        by_proxy(running, proxy_header("192.0.2.9", tls_value(api_key_id))),
        by_websocket(running, f"CN={api_key_id},O=Acme"),
    )


async def test_a_certificate_stands_for_the_api_key_that_it_names(running):
    api_key_id = await device(running)
    for way in await ways(running, api_key_id):
        async with way as client:
            assert await connack(client, client_id="certified") == 0
            await client.stores("a/1", b"x")
            client.publish("b/1", b"x")  # its grants hold
            assert (await client.packet())[1][2] == Code.NOT_AUTHORIZED
            shown = (await listed(running))["certified"]
            assert (shown["api_key_id"], shown["address"]) == (api_key_id, "192.0.2.9")


async def test_an_api_key_that_is_disabled_lets_no_certificate_in_and_ends_its_connections(running):
    api_key_id = await device(running)
    async with by_proxy(running, proxy_header("192.0.2.9", tls_value(api_key_id))) as client:
        assert await connack(client) == 0
        answer = await running[0].client.patch(
            f"/v1/api-keys/{api_key_id}", json={"disabled": True}
        )
        assert answer.is_success
        client.send(codec.packet(codec.PINGREQ, b""))
        assert (await client.packet())[0] == 0xE0
    for name in (api_key_id, "7ckd4wpx", "seb"):
        for way in await ways(running, name):
            async with way as client:
                assert await connack(client) == Code.BAD_PASSWORD


async def test_a_password_counts_more_than_a_certificate(running):
    api_key_id = await device(running)
    header = proxy_header("192.0.2.9", tls_value(api_key_id))
    async with by_proxy(running, header) as client:
        assert await connack(client, running[0].admin_key) == 0
        await client.stores("b/1", b"x")
    async with by_proxy(running, header) as client:
        assert await connack(client, "seb_wrong") == Code.BAD_PASSWORD


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.9 192.0.2.1 5 1883\r\n",
        proxy_header("192.0.2.9"),
        proxy_header("192.0.2.9", tls_value("", flags=1)),
    ],
)
async def test_without_a_certificate_the_password_is_needed(running, header):
    async with by_proxy(running, header) as client:
        assert await connack(client) == Code.NOT_AUTHORIZED
    async with by_proxy(running, header) as client:
        assert await connack(client, running[0].admin_key, "far") == 0
        assert (await listed(running))["far"]["address"] == "192.0.2.9"


async def test_what_comes_with_the_header_and_what_is_cut_is_taken(running):
    header = proxy_header("192.0.2.9", tls_value(await device(running)))
    data = header + connect(None)
    async with raw(running) as client:
        client.send(data)
        assert (await client.packet())[1][1] == 0
    async with raw(running) as client:
        for byte in data:
            client.send(bytes([byte]))
            await client.writer.drain()
        assert (await client.packet())[1][1] == 0


async def test_a_trusted_proxy_that_sends_no_header_in_time_is_cut_off(running, monkeypatch):
    async with raw(running) as client:
        assert await connack(client, running[0].admin_key) is None
    monkeypatch.setattr(socket_limits, "PROXY_S_MAX", 0.05)
    async with raw(running) as client:
        client.send(b"PROXY ")
        assert await client.packet() == (0, b"")
    async with by_proxy(running, proxy_header("192.0.2.9")) as client:
        assert await connack(client, running[0].admin_key) == 0  # in time


async def test_who_is_not_trusted_is_nobodys_proxy(running, monkeypatch):
    api_key_id = await device(running)
    strange = Trusted([ip_network("192.0.2.1")], with_certificate=True)
    monkeypatch.setattr(running[1], "_trusted", strange)
    async with raw(running) as client:
        assert await connack(client, running[0].admin_key) == 0
    async with by_proxy(running, proxy_header("192.0.2.9", tls_value(api_key_id))) as client:
        assert await connack(client) is None
    carried = carrying(running[1].connection, "mqtt", strange.proxies, HEADER)
    monkeypatch.setitem(running[0].server.upgrades, b"/mqtt", carried)
    async with by_websocket(running, api_key_id) as client:
        assert await connack(client) == Code.NOT_AUTHORIZED


async def test_certificates_count_only_where_the_settings_say_so(running, monkeypatch):
    api_key_id = await device(running)
    monkeypatch.setattr(running[1], "_trusted", Trusted(LOCAL, with_certificate=False))
    monkeypatch.setitem(
        running[0].server.upgrades, b"/mqtt", carrying(running[1].connection, "mqtt", LOCAL)
    )
    for way in await ways(running, api_key_id):
        async with way as client:
            assert await connack(client) == Code.NOT_AUTHORIZED


async def test_a_header_that_the_client_may_have_sent_itself_names_nobody(running):
    api_key_id = await device(running)
    for way in (
        by_websocket(running, api_key_id, forwarded=False),
        by_websocket(running, "CN=somebody", api_key_id),
        by_websocket(running, ""),
    ):
        async with way as client:
            assert await connack(client) == Code.NOT_AUTHORIZED


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"mqtt_host": "::1"}, "mqtt_host needs mqtt_port"),
        ({"mqtt_proxy_protocol": "address"}, "mqtt_proxy_protocol needs mqtt_port"),
        (
            {"mqtt_proxy_protocol": "address", "mqtt_port": "0"},
            "mqtt_proxy_protocol needs trusted_proxies",
        ),
        (
            {
                "mqtt_proxy_protocol": "certificate",
                "mqtt_port": "0",
                "trusted_proxies": "127.0.0.1",
                "mqtt_tls_certificate": "a",
            },
            "exclude each other",
        ),
        ({"mqtt_certificate_header": "A"}, "mqtt_certificate_header needs mqtt_websocket"),
        (
            {"mqtt_certificate_header": "A", "mqtt_websocket": True},
            "mqtt_certificate_header needs trusted_proxies",
        ),
    ],
)
async def test_settings_that_make_no_sense_together_are_refused(tmp_path, settings, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        async with running_appliance(tmp_path, **settings):
            pass

"""Who is connected to the ports of protocols: listed, shown and ended."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from seb_appliance.protocols.mqtt.codec import Code
from seb_appliance.protocols.sockets import limits as socket_limits
from tests.http.test_mqtt_sessions import FOR_AN_HOUR, gone
from tests.support.mqtt_client import connected, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("mqtt")) as both:
        yield both


async def listed(running):
    answer = await running[0].client.get("/v1/connections")
    assert answer.status_code == 200, answer.text
    return {one["client"]: one for one in answer.json()["connections"]}


async def test_connections_are_listed_with_what_they_did(running):
    async with (
        connected(running, client_id="reader") as reader,
        connected(running, version=4, client_id="writer") as writer,
    ):
        await reader.subscribe("a/+")
        await reader.subscribe("$share/g/b")
        for number in range(3):
            await writer.stores(f"a/{number}", b"x")
        for _ in range(3):
            await reader.message()
        found = await listed(running)
        told = {name: found["reader"][name] for name in ("protocol", "subscriptions", "waiting")}
        assert told == {"protocol": "MQTT 5", "subscriptions": 2, "waiting": 3}
        assert (found["reader"]["received"], found["reader"]["sent"]) == (0, 3)
        assert (found["writer"]["protocol"], found["writer"]["received"]) == ("MQTT 3.1.1", 3)
        assert found["writer"]["api_key_id"] == running[0].admin_key.split("_")[1]
        assert found["writer"]["address"] == "127.0.0.1"


async def test_a_connection_is_ended_and_its_client_may_come_again(running):
    async with connected(running, client_id="ended") as client:
        number = (await listed(running))["ended"]["connection"]
        path = f"/v1/connections/{number}"
        assert (await running[0].client.delete(path)).status_code == 204
        first, body = await client.packet()
        assert (first, body[0]) == (0xE0, Code.ADMINISTRATIVE)
        assert await client.packet() == (0, b"")
        while "ended" in await listed(running):
            await asyncio.sleep(0)
        answer = await running[0].client.delete(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    async with connected(running, client_id="ended"):
        assert "ended" in await listed(running)


async def test_a_session_of_a_client_that_is_away_is_listed_and_can_be_ended(running):
    async with connected(running, client_id="sleeper", **FOR_AN_HOUR) as client:
        await client.subscribe("sleep/#")
        assert (await listed(running))["sleeper"]["until"] is None
    await gone(running, "sleeper")
    found = (await listed(running))["sleeper"]
    assert (found["address"], found["since"], found["subscriptions"]) == ("", None, 1)
    assert found["until"] > "20"
    assert (await running[0].client.delete(f"/v1/connections/{found['connection']}")).is_success
    assert "sleeper" not in await listed(running)
    async with connected(running, client_id="sleeper", **FOR_AN_HOUR) as client:
        assert not client.present


async def test_no_more_are_shown_than_so_many(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "CONNECTIONS_SHOWN_MAX", 1)
    async with connected(running, client_id="shown-1"), connected(running, client_id="shown-2"):
        for words, most in (("shown-", 2), ("shown-2", 1), ("nobody", 0)):
            answer = await running[0].client.get("/v1/connections", params={"filter": words})
            found = answer.json()
            assert (len(found["connections"]), found["total"]) == (min(1, most), most)

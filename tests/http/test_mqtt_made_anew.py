"""What MQTT clients have when a topic with messages is deleted, and made again under its name."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from seb_appliance.storage.stores.memory import MemoryStore
from tests.http.test_mqtt_retained import found
from tests.http.test_mqtt_sessions import FOR_AN_HOUR, gone, publish
from tests.support.mqtt_client import connected, serving

pytestmark = pytest.mark.asyncio
DEVICE = [{"operation": one, "topics": "mqtt.**"} for one in ("produce", "consume")]


async def device_of(running):
    """The secret of an API key that may create no topic."""
    made = await running[0].client.post("/v1/api-keys", json={"name": "device", "grants": DEVICE})
    return made.json()["secret"]


@pytest.mark.parametrize("topic_filter", ["again/#", "$share/g/again/#"])
async def test_a_session_misses_nothing_of_the_new_one_after_a_restart(tmp_path, topic_filter):
    store = MemoryStore()
    async with serving(tmp_path / "a", store=store) as first:
        await publish(first, "again/1", *(b"%d" % number for number in range(5)))
        async with connected(first, client_id="c", **FOR_AN_HOUR) as client:
            await client.subscribe(topic_filter)
        await gone(first, "c")
        await first[0].client.delete("/v1/topics/mqtt")
        await publish(first, "again/1", b"missed", b"too")
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a/admin.key", tmp_path / "b")
    async with (
        serving(tmp_path / "b", store=store, take_over=True) as second,
        connected(second, client_id="c", **FOR_AN_HOUR) as client,
    ):
        assert client.present
        assert [(await client.message()).payload for _ in range(2)] == [b"missed", b"too"]


async def retained(running):
    """What a new subscriber to the lamps is sent at once."""
    async with connected(running) as client:
        await client.stores("the/end", b"end", retain=True)
    return await found(running, "lamp/#")


async def test_nothing_is_retained_once_the_topic_of_retained_messages_was_deleted(tmp_path):
    async with serving(tmp_path) as running:
        seb, room = running[0], running[1].retained._room
        device_key = await device_of(running)
        for times in range(2):
            async with connected(running, password=device_key) as device:
                await device.stores("lamp/1", b"%d" % times, retain=True)
                await device.stores("lamp/2", b"%d" % times, retain=True)
            both = {"lamp/1": b"%d" % times, "lamp/2": b"%d" % times}
            assert await retained(running) == both
            topic = (await seb.client.get("/v1/topics/mqtt-retained")).json()
            assert topic["settings"]["cleanup"] == "compact"
            await seb.client.delete("/v1/topics/mqtt-retained")
            async with asyncio.timeout(5):
                while not seb.appliance.broker.topics.exists("mqtt-retained"):
                    await asyncio.sleep(0)
            assert (running[1].retained.count, room.used) == (0, 0)
            assert await retained(running) == {}


async def test_a_client_that_may_create_no_topic_publishes_where_the_topic_was_deleted(tmp_path):
    async with serving(tmp_path) as running:
        seb, device = running[0].client, await device_of(running)
        await seb.delete("/v1/topics/mqtt")
        async with connected(running, password=device) as client:
            await client.stores("a", b"1")
        records = (await seb.get("/v1/topics/mqtt/records")).json()["records"]
        assert [one["value"] for one in records] == ["1"]


async def test_sessions_outlive_a_topic_of_sessions_that_was_deleted(tmp_path):
    store = MemoryStore()
    async with serving(tmp_path / "a", store=store) as first:
        device = await device_of(first)
        for name in ("one", "other"):
            async with connected(first, password=device, client_id=name, **FOR_AN_HOUR) as client:
                assert await client.subscribe("a/#") == 1
        await gone(first, "one")
        await first[0].client.delete("/v1/topics/mqtt-sessions")
        async with connected(first, password=device, client_id="other", **FOR_AN_HOUR) as client:
            assert await client.subscribe("b/#") == 1
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a/admin.key", tmp_path / "b")
    async with serving(tmp_path / "b", store=store, take_over=True) as second:
        for name in ("one", "other"):
            async with connected(second, password=device, client_id=name, **FOR_AN_HOUR) as client:
                assert client.present

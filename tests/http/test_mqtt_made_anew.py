"""What MQTT clients have when a topic with messages is deleted, and made again under its name."""

from __future__ import annotations

import shutil

import pytest

from seb_appliance.storage.stores.memory import MemoryStore
from tests.http.test_mqtt_sessions import FOR_AN_HOUR, gone, publish
from tests.support.mqtt_client import connected, serving

pytestmark = pytest.mark.asyncio


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

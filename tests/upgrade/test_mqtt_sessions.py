"""MQTT sessions of the release before routes, and for it: both read what the other one stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from seb_appliance.protocols.mqtt.codec import Subscription
from seb_appliance.protocols.mqtt.sessions import Document
from seb_appliance.storage.stores.memory import MemoryStore
from tests.http.test_mqtt_sessions import FOR_AN_HOUR, gone, publish
from tests.support.mqtt_client import connected, serving


class OlderDocument(msgspec.Struct, omit_defaults=True):
    """As that release had it: each filter with the log end of the only topic."""

    expiry_s: int
    filters: list[tuple[Subscription, int]]
    until_us: int | None = None
    shared: list[tuple[Subscription, int]] = []


async def stored(running) -> dict[str, bytes]:
    """The newest document of each session."""
    answer = await running[0].client.get("/v1/topics/mqtt-sessions/records")
    found = {one["key"]: one["value"] for one in answer.json()["records"]}
    return {
        key: (value if isinstance(value, str) else json.dumps(value)).encode()
        for key, value in found.items()
    }


@pytest.mark.asyncio
async def test_an_older_release_reads_sessions_that_have_no_routes(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        await publish(running, "a/1", b"earlier")
        async with connected(running, client_id="c", **FOR_AN_HOUR) as client:
            await client.subscribe("a/#")
            await client.subscribe("$share/g/a/#")
        (document,) = (await stored(running)).values()
    older = msgspec.json.decode(document, type=OlderDocument)
    assert [(one.topic_filter, since) for one, since in older.filters] == [("a/#", 1)]
    assert [(one.topic_filter, since) for one, since in older.shared] == [("$share/g/a/#", 1)]


@pytest.mark.asyncio
@pytest.mark.parametrize("routes", [None, "devices/#=devices"])
async def test_a_session_of_an_older_release_misses_nothing(
    tmp_path: Path, routes: str | None
) -> None:
    store = MemoryStore()
    asked = Subscription("#", 1)
    older = OlderDocument(3_600, [(asked, 1)], until_us=2**52)
    async with serving(tmp_path / "a", store=store) as running:
        await publish(running, "x", b"before the subscription")
        await publish(running, "x", b"missed")
        key = running[0].admin_key.split("_")[1]
        record = {"key": f"{key}/c", "value": msgspec.to_builtins(older)}
        sessions = "/v1/topics/mqtt-sessions/records"
        answer = await running[0].client.post(sessions, json={"records": [record]})
        assert answer.is_success, answer.text
        offsets = {"offsets": {"mqtt": 1}}
        await running[0].client.put(f"/v1/groups/mqtt.{key}.c/offsets", json=offsets)
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a/admin.key", tmp_path / "b")
    async with serving(tmp_path / "b", routes, store=store, take_over=True) as running:
        await publish(running, "devices/1", b"routed, or not")
        async with connected(running, client_id="c", **FOR_AN_HOUR) as client:
            assert client.present
            found = {(await client.message()).payload for _ in range(2)}
        assert found == {b"missed", b"routed, or not"}
        await gone(running, "c")
        ((_, document),) = [one for one in (await stored(running)).items() if one[0].endswith("/c")]
        assert bool(msgspec.json.decode(document, type=Document).routes) == (routes is not None)

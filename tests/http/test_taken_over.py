"""Whoever waits at an idle appliance that was taken over makes it look, and so end: its clients
would wait there for ever, while what they wait for is stored by another one."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from tests.http.test_stream_subscriptions import act, claim, pool, put, woken
from tests.support.mqtt_client import connected, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
EXTEND = {"deliveries": ["of nobody"], "lease_ms": 60_000}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("idle")) as both:
        client = both[0].client
        await client.put("/v1/topics/t", json={"key_index": "history"})
        await client.put("/v1/queues/q", json={"topics": ["t"]})
        await client.put("/v1/stream/s", content=b"x", headers={"content-type": "text/plain"})
        yield both


@pytest.fixture
def looks(running, monkeypatch):
    """Of the appliance for a newer writer. The last answer of its bucket is old."""
    journal, found = running[0].appliance.journal, asyncio.Event()

    async def look():
        found.set()

    monkeypatch.setattr(journal, "confirm_in_force", look)
    monkeypatch.setattr(journal.health, "last_success_s", -1e9)
    return found


async def has_looked(looks):
    async with asyncio.timeout(5):
        await looks.wait()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/t/records?wait=1ms",
        "/v1/topics/t/records?format=ndjson&wait=1ms",
        "/v1/records?topics=t&format=json&wait=1ms",
        "/v1/groups/g/topics/t/records?wait=1ms",
        "/v1/topics/t/keys",
        "/v1/topics/t/keys/latest?key=k",
        "/v1/topics/t/keys/history?key=k",
        "/v1/topics/t/records?view=latest",
    ],
)
async def test_a_reader_makes_it_look(running, looks, path):
    answer = await running[0].client.get(path)
    assert answer.status_code in (200, 404), answer.text
    await has_looked(looks)


async def test_a_worker_of_a_queue_makes_it_look(running, looks):
    taken = await running[0].client.post("/v1/queues/q/take", json={"max": 1})
    assert taken.json() == {"records": []}
    await has_looked(looks)


async def test_who_keeps_a_lease_makes_it_look(running, looks, monkeypatch):
    """Another one has it at the other appliance, and both would for ever."""
    client, asked = running[0].client, {"holder": "one", "ttl_ms": 60_000}
    lease = "/v1/groups/leader/lease"
    assert (await client.post(lease, json=asked)).status_code == 200
    await has_looked(looks)
    for path, body in ((lease, asked), ("/v1/queues/q/extend", EXTEND)):
        looks.clear()
        monkeypatch.setattr(running[0].appliance.journal.health, "last_success_s", -1e9)
        assert (await client.post(path, json=body)).status_code == 200
        await has_looked(looks)


async def test_who_waits_for_more_of_a_stream_makes_it_look(running, looks, monkeypatch):
    monkeypatch.setattr("seb_appliance.protocols.durable_streams.limits.POLL_S", 0)
    waited = await running[0].client.get("/v1/stream/s?offset=now&live=long-poll")
    assert waited.status_code == 204
    await has_looked(looks)


async def test_a_worker_of_a_subscription_of_streams_makes_it_look(running, looks):
    seb = running[0]
    await pool(seb, "work")
    await put(seb, "work/a", 1)
    await woken(seb, "work", 1)
    looks.clear()
    seb.appliance.journal.health.last_success_s = -1e9
    claimed = await claim(seb, "work")
    await has_looked(looks)
    looks.clear()
    seb.appliance.journal.health.last_success_s = -1e9
    await act(seb, "work", claimed)
    await has_looked(looks)


async def test_an_mqtt_client_that_only_subscribes_makes_it_look(running, looks):
    async with connected(running) as client:
        await client.subscribe("lamp/#")
        assert not looks.is_set()
        assert await client.pong()
    await has_looked(looks)

"""With linger = auto a window may stay open for half a minute: who waits for less is answered in
time, and nothing of ours that waits for windows stands still."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time

import pytest
import pytest_asyncio

from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.subscriptions.running import Subscriptions
from tests.support import kafka_client, mqtt_client
from tests.support.appliance import running_appliance
from tests.support.kafka_client import to
from tests.support.receiver import OK, receiving
from tests.support.stretching import open_for_s, relax, stretch
from tests.support.subscribing import acked, produce, subscribe
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")
KEPT = {"clean_start": False, "session_expiry": 3_600}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory):
    local = {"push_networks": "127.0.0.0/8"}
    async with running_appliance(tmp_path_factory.mktemp("stretched"), **local) as running:
        await running.client.put("/v1/topics/t", json={})
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kafka(tmp_path_factory):
    async with kafka_client.serving(tmp_path_factory.mktemp("kafka")) as both:
        await both[0].client.put("/v1/topics/t", json={})
        yield both


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mqtt(tmp_path_factory):
    async with mqtt_client.serving(tmp_path_factory.mktemp("mqtt")) as both:
        yield both


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({}, 28.0), ({"Seb-Timeout": "30s"}, 28.0), ({"Seb-Timeout": "5s"}, 3.0)],
)
async def test_a_window_closes_before_a_request_gives_up(seb, headers, seconds):
    stretch(seb)
    sent = seb.client.post("/v1/topics/t/records", content=b"v", headers=headers)
    answer = asyncio.create_task(sent)
    assert await open_for_s(seb) == seconds
    await relax(seb)
    assert (await answer).status_code == 201


async def test_an_inlet_may_be_made_while_windows_are_stretched_and_answers_its_sender(seb):
    stretch(seb)
    wanted = {"topic": "t", "verify": {"scheme": "slack"}, "secrets": ["s"]}
    assert (await seb.client.put("/v1/inlets/quick", json=wanted)).status_code == 201
    now = str(int(time.time()))
    signature = hmac.new(b"s", f"v0:{now}:{{}}".encode(), hashlib.sha256).hexdigest()
    headers = {"X-Slack-Signature": f"v0={signature}", "X-Slack-Request-Timestamp": now}
    sent = seb.client.post("/v1/inlets/quick", content=b"{}", headers=headers)
    answer = asyncio.create_task(sent)
    assert await open_for_s(seb) == 1.25, "half of what Slack waits, without half a second"
    await relax(seb)
    assert (await answer).status_code == 200


async def test_deliveries_are_sent_while_those_before_wait_to_be_acknowledged(seb):
    async with receiving() as receiver:
        receiver.answers.extend([OK] * 3)
        await subscribe(seb, "one-by-one", receiver.url, concurrency=1)
        await produce(seb, "one-by-one", b"1", b"2", b"3")
        await acked(seb, "one-by-one", 3)
        await produce(seb, "one-by-one", b"warm")
        await acked(seb, "one-by-one", 4)
        await seb.client.post("/v1/subscriptions/one-by-one/pause")
        await produce(seb, "one-by-one", b"1", b"2", b"3")
        stretch(seb)
        await seb.client.post("/v1/subscriptions/one-by-one/resume")
        await receiver.arrived(7)
        assert await open_for_s(seb, callers=3) > 20
        subscriptions = seb.appliance.beside[Subscriptions]
        assert subscriptions.worker(subscriptions.find("one-by-one")).on_its_way == 0
        await relax(seb)
        await acked(seb, "one-by-one", 7)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ({"timeout_ms": 30_000}, 28.0),
        ({"timeout_ms": 10_000}, 8.0),
        ({"timeout_ms": 1_000}, 0.5),
        ({"timeout_ms": 1_000, "acks": 0}, 28.0),
    ],
)
async def test_a_window_closes_before_a_kafka_producer_gives_up(kafka, asked, seconds):
    async with kafka_client.connected(kafka) as client:
        stretch(kafka[0])
        client.send("Produce", **to("t", made(Sent()), **asked))
        assert await open_for_s(kafka[0]) == seconds
        await relax(kafka[0])
        if asked.get("acks") != 0:
            answer = await client.answer()
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


async def test_a_commit_is_stored_before_the_session_of_its_member_is_over(kafka):
    """Its heartbeats wait behind the commit."""
    member = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    asked = {"group_id": "g", "topics": [{"name": "t", "partitions": [part]}]}
    async with kafka_client.connected(kafka) as client:
        await client.produce("t", made(Sent()))
        joined = await client.call("JoinGroup", **member)
        assert joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        joined = await client.call("JoinGroup", **{**member, "member_id": joined["member_id"]})
        named = {name: joined[name] for name in ("generation_id", "member_id")}
        mine = {"member_id": named["member_id"], "assignment": b""}
        synced = await client.call("SyncGroup", group_id="g", assignments=[mine], **named)
        assert synced["error_code"] == 0
        stretch(kafka[0])
        client.send("OffsetCommit", **asked, **named)
        assert await open_for_s(kafka[0]) == 8.0
        await relax(kafka[0])
        assert (await client.answer())["topics"][0]["partitions"][0]["error_code"] == 0


async def test_a_client_of_mqtt_hears_of_its_session_before_it_would_miss_a_ping(mqtt):
    async with mqtt_client.connected(mqtt, client_id="s", keep_alive_s=20, **KEPT) as client:
        stretch(mqtt[0])
        client.send(mqtt_client.subscribe("a/b"), codec.packet(codec.PINGREQ, b""))
        assert await open_for_s(mqtt[0]) == 18.0
        await relax(mqtt[0])
        assert [(await client.packet())[0] for _ in range(2)] == [0x90, 0xD0]


async def test_a_client_of_mqtt_that_begins_anew_does_not_wait_for_a_window(mqtt):
    async with mqtt_client.connected(mqtt, client_id="n", **KEPT) as client:
        await client.subscribe("a/b")
    stretch(mqtt[0])
    async with asyncio.timeout(10), mqtt_client.connected(mqtt, client_id="n") as client:
        assert not client.present
    await relax(mqtt[0])

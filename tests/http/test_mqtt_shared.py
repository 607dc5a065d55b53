"""MQTT shared subscriptions: each message goes to one client of a group. And what ends them."""

from __future__ import annotations

import asyncio
import shutil

import pytest
import pytest_asyncio

from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt.codec import Code
from seb_appliance.protocols.mqtt.messages import reading
from seb_appliance.protocols.mqtt.sending.outgoing import Outgoing
from seb_appliance.storage.stores.memory import MemoryStore
from tests.http.test_mqtt import api_key
from tests.http.test_mqtt_sessions import FOR_AN_HOUR, ack, gone, publish
from tests.support.mqtt_client import connected, serving, subscribe

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("mqtt")) as both:
        yield both


async def messages(client, number):
    """So many, acknowledged."""
    found = []
    for _ in range(number):
        message = await client.message()
        found.append(message.payload)
        if message.qos:
            ack(client, message)
    return found


@pytest.mark.parametrize("version", [4, 5])
async def test_each_message_goes_to_one_client_in_turns(running, version):
    topic_filter, topic = f"$share/turns/{version}/+", f"{version}/a"
    async with (
        connected(running, version=version, client_id="one") as one,
        connected(running, version=version, client_id="two") as two,
        connected(running, client_id="all") as everything,
    ):
        assert await one.subscribe(topic_filter) == 1
        assert await two.subscribe(topic_filter, options=2) == 1  # QoS 1 at most
        await everything.subscribe(topic)
        await publish(running, topic, *(b"%d" % i for i in range(10)))
        await publish(running, "elsewhere", b"x")
        assert await messages(everything, 10) == [b"%d" % i for i in range(10)]
        assert await messages(one, 5) + await messages(two, 5) == [
            b"%d" % i for i in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
        ]
        assert await one.pong()
        assert await two.pong()


async def test_what_a_client_did_not_acknowledge_goes_to_another_when_it_leaves(running):
    async with connected(running, client_id="stays") as stays:
        async with connected(running, client_id="leaves") as leaves:
            await leaves.subscribe("$share/left/left")
            await publish(running, "left", b"1", b"2", b"3")
            sent = [await leaves.message() for _ in range(3)]
            ack(leaves, sent[1])
            assert await leaves.pong()
            await stays.subscribe("$share/left/left")
        await gone(running, "leaves")
        assert await messages(stays, 2) == [b"1", b"3"]
        await publish(running, "left", b"4")
        assert await messages(stays, 1) == [b"4"]


async def test_what_nobody_takes_again_stays_for_who_comes_later(running):
    async with connected(running, client_id="last") as last:
        given = {**FOR_AN_HOUR, "receive_maximum": 1}
        async with connected(running, client_id="full", **given) as full:
            await full.subscribe("$share/again/again")
            async with connected(running, client_id="leaves") as leaves:
                await publish(running, "again", b"1")
                assert (await full.message()).payload == b"1"
                await leaves.subscribe("$share/again/again")
                await publish(running, "again", b"2", b"3")
                assert [(await leaves.message()).payload for _ in range(2)] == [b"2", b"3"]
            await gone(running, "leaves")
            assert await full.pong()
        await gone(running, "full")
        await last.subscribe("$share/again/again")
        assert sorted(await messages(last, 3)) == [b"1", b"2", b"3"]


async def test_a_client_that_acknowledges_nothing_delays_nobody(running):
    async with (
        connected(running, client_id="slow", receive_maximum=1) as slow,
        connected(running, client_id="quick") as quick,
    ):
        await slow.subscribe("$share/pace/pace")
        await quick.subscribe("$share/pace/pace")
        await publish(running, "pace", *(b"%d" % i for i in range(9)))
        assert (await slow.message()).payload == b"0"
        assert await messages(quick, 8) == [b"%d" % i for i in range(1, 9)]


async def test_a_client_without_room_is_not_looked_at_for_each_message(running, monkeypatch):
    """There may be thousands of them."""
    asked, offer = list[str](), Outgoing.offer

    def counted(self, *given):
        asked.append(self._session.client[1])
        return offer(self, *given)

    monkeypatch.setattr(Outgoing, "offer", counted)
    async with (
        connected(running, client_id="deaf", receive_maximum=1) as deaf,
        connected(running, client_id="quick") as quick,
    ):
        await deaf.subscribe("$share/once/once")
        await quick.subscribe("$share/once/once")
        await publish(running, "once", *(b"%d" % i for i in range(20)))
        await messages(quick, 19)
        assert asked.count("deaf") <= 3  # once more when its first message is on its way
        ack(deaf, await deaf.message())
        assert await deaf.pong()
        await publish(running, "once", b"20", b"21")
        assert await messages(quick, 1) + await messages(deaf, 1) == [b"20", b"21"]


async def test_a_group_of_sessions_gets_what_came_while_nobody_was_there(running):
    async with connected(running, client_id="s1", **FOR_AN_HOUR) as client:
        await client.subscribe("$share/kept/kept/#")
        await publish(running, "kept/1", b"1")
        (first,) = [await client.message()]
        assert first.payload == b"1"
    await gone(running, "s1")
    await publish(running, "kept/2", b"2", b"3")
    async with connected(running, client_id="s2") as other:
        await other.subscribe("$share/kept/kept/#")
        assert await messages(other, 3) == [b"1", b"2", b"3"]
        async with connected(running, client_id="s1", **FOR_AN_HOUR) as client:
            assert client.present
            await publish(running, "kept/3", b"4", b"5")
            assert await messages(other, 1) + await messages(client, 1) == [b"4", b"5"]


async def test_a_new_machine_goes_on_where_the_group_was(tmp_path):
    store = MemoryStore()
    async with serving(tmp_path / "one", store=store) as running:
        async with connected(running, client_id="s", **FOR_AN_HOUR) as client:
            await client.subscribe("$share/g/m")
            await publish(running, "m", b"1", b"2")
            assert await messages(client, 1) == [b"1"]
            (share,) = running[1].shared._all.values()
            broker = running[0].appliance.broker
            topic_id = broker.topics.get("mqtt").topic_id
            while broker.groups.committed_offset(share.group, topic_id) != 1:
                await asyncio.sleep(0)
        key = running[0].admin_key
    shutil.rmtree(tmp_path / "one")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "admin.key").write_text(key)
    async with (
        serving(tmp_path / "two", store=store, take_over=True) as running,
        connected(running, client_id="s", **FOR_AN_HOUR) as client,
    ):
        assert client.present
        assert await messages(client, 1) == [b"2"]


async def test_a_group_without_clients_and_sessions_is_forgotten(running):
    before = running[1].shared.count
    async with connected(running, client_id="brief") as client:
        await client.subscribe("$share/brief/brief")
        assert running[1].shared.count == before + 1
    await gone(running, "brief")
    assert running[1].shared.count == before
    await publish(running, "brief", b"missed")
    async with connected(running, client_id="kept-brief", **FOR_AN_HOUR) as client:
        await client.subscribe("$share/brief/brief")
        await publish(running, "brief", b"new")
        assert await messages(client, 1) == [b"new"]
    await gone(running, "kept-brief")
    assert running[1].shared.count == before + 1
    async with connected(running, client_id="kept-brief"):  # clean start ends the session
        assert running[1].shared.count == before


async def test_who_unsubscribes_gets_nothing_more(running):
    async with connected(running, client_id="u") as client:
        await client.subscribe("$share/u/u")
        body = b"\0\x07\0" + codec.text("$share/u/u")
        for code in (Code.SUCCESS, Code.NO_SUBSCRIPTION):
            client.send(codec.packet(codec.UNSUBSCRIBE, body, 2))
            first, answer = await client.packet()
            assert (first, answer[-1]) == (0xB0, code)
        await publish(running, "u", b"x")
        assert await client.pong()


async def test_retained_messages_are_not_sent_to_a_share(running):
    async with connected(running, client_id="r") as client:
        await client.stores("r/1", b"kept", retain=True)
        await client.subscribe("$share/r/r/#")
        assert await client.pong()


@pytest.mark.parametrize(
    "topic_filter", ["$share/a", "$share//a", "$share/a/", "$share/+/a", "$share/#", "$share/a/b#"]
)
async def test_a_bad_name_of_a_share_is_refused(running, topic_filter):
    async with connected(running, client_id="bad") as client:
        assert await client.subscribe(topic_filter) == Code.BAD_FILTER
        assert await client.pong()


async def test_no_local_with_a_share_is_an_error_of_the_protocol(running):
    async with connected(running, client_id="nl") as client:
        client.send(
            codec.packet(codec.SUBSCRIBE, b"\0\x07\0" + codec.text("$share/a/b") + b"\x05", 2)
        )
        first, body = await client.packet()
        assert (first, body[0]) == (0xE0, Code.PROTOCOL_ERROR)


async def test_shares_are_bounded(running, monkeypatch):
    shared = running[1].shared
    monkeypatch.setattr(shared._room, "limit", 2 * shared.count + 2)  # half are for other keys
    async with connected(running, client_id="many") as client:
        assert await client.subscribe("$share/many/1") == 1
        assert await client.subscribe("$share/many/2") == Code.QUOTA


async def test_others_are_served_while_topics_are_looked_at_and_a_client_may_leave_meanwhile(
    running, monkeypatch
):
    shared, looking, goes_on = running[1].shared, asyncio.Event(), asyncio.Event()

    async def slowly(items):
        looking.set()
        await goes_on.wait()
        for one in items:
            yield one

    monkeypatch.setattr(reading, "in_slices", slowly)
    async with (
        connected(running, client_id="other") as other,
        connected(running, client_id="leaves") as leaves,
    ):
        leaves.send(subscribe("$share/leaves/#", 1, leaves.version))
        await looking.wait()
        assert await other.pong()
        async with connected(running, client_id="leaves"):  # takes over
            goes_on.set()
            assert await other.subscribe("$share/stays/#") == 1
            assert {one.group for one in shared._all} >= {"stays"}
            assert "leaves" not in {one.group for one in shared._all}


async def test_a_share_needs_a_grant_for_its_filter(running):
    answer = await running[0].client.post(
        "/v1/api-keys",
        json={"name": "s", "grants": [{"operation": "consume", "topics": "mqtt.ok.**"}]},
    )
    secret = answer.json()["secret"]
    async with connected(running, client_id="g", password=secret) as client:
        assert await client.subscribe("$share/g/ok/a") == 1
        assert await client.subscribe("$share/g/other") == Code.NOT_AUTHORIZED


@pytest.mark.parametrize("topic_filter", ["secret/#", "$share/s/secret/#"])
@pytest.mark.parametrize("qos", [0, 1])
async def test_an_api_key_that_is_revoked_gets_no_more_messages(running, topic_filter, qos):
    key = await api_key(running, ("consume", "mqtt.**"))
    async with (
        connected(running, client_id="spy", password=key["secret"]) as spy,
        connected(running, client_id="publisher") as publisher,
    ):
        await spy.subscribe(topic_filter)
        await running[0].client.delete(f"/v1/api-keys/{key['api_key_id']}")
        publisher.publish("secret/1", b"1", qos=qos)
        first, body = await spy.packet()
        assert (first, body[0]) == (0xE0, Code.NOT_AUTHORIZED)

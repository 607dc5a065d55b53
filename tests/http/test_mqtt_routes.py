"""MQTT topics whose messages are in other topics: by record key, or a topic each."""

from __future__ import annotations

import shutil

import pytest
import pytest_asyncio

from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code
from seb_appliance.protocols.mqtt.sending import dispatching
from seb_appliance.storage.stores.memory import MemoryStore
from tests.http.test_mqtt import api_key
from tests.http.test_mqtt_sessions import FOR_AN_HOUR, ack, gone, publish
from tests.support.mqtt_client import connected, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROUTES = "devices/+/state=devices, plant/#=*"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("mqtt"), ROUTES) as both:
        yield both


async def records(running, topic):
    answer = await running[0].client.get(f"/v1/topics/{topic}/records")
    return [(one.get("key"), one.get("value")) for one in answer.json()["records"]]


async def secret_of(running, *grants):
    return (await api_key(running, *grants))["secret"]


async def produce(running, topic, **record):
    answer = await running[0].client.post(f"/v1/topics/{topic}/records", json={"records": [record]})
    assert answer.is_success, answer.text


async def taken(client, number):
    """So many messages, acknowledged: topics and payloads."""
    found = []
    for _ in range(number):
        message = await client.message()
        found.append((message.topic, message.payload))
        ack(client, message)
    return found


async def test_a_route_has_its_messages_in_its_topic_by_their_key(running):
    await publish(running, "devices/a/state", b"on")
    await publish(running, "devices/a/other", b"mqtt")
    assert await records(running, "devices") == [("devices/a/state", "on")]
    assert ("devices/a/other", "mqtt") in await records(running, "mqtt")


async def test_each_topic_of_a_route_with_a_star_is_a_topic_and_the_other_way_round(running):
    async with connected(running, client_id="all") as client:
        await client.subscribe("plant/#")
        await publish(running, "plant/a/b", b"by MQTT")
        await produce(running, "plant.a.b", value="by HTTP")
        await produce(running, "plant", value="above")
        assert await taken(client, 3) == [
            ("plant/a/b", b"by MQTT"),
            ("plant/a/b", b"by HTTP"),
            ("plant", b"above"),
        ]
    assert await records(running, "plant.a.b") == [(None, "by MQTT"), (None, "by HTTP")]


async def test_a_subscriber_gets_what_matches_from_all_topics(running):
    async with connected(running, client_id="all") as client:
        await client.subscribe("#")
        topics = ["devices/x/state", "elsewhere", "plant/x", "devices/x/other"]
        for topic in topics:
            await publish(running, topic, b"1")
            assert await taken(client, 1) == [(topic, b"1")]


async def test_what_others_store_in_the_topic_of_a_route_needs_a_key_that_it_matches(running):
    async with connected(running, client_id="all") as client:
        await client.subscribe("#")
        await produce(running, "devices", key="secret/door", value="open")
        await produce(running, "devices", key="devices/y/state", value="on")
        assert await taken(client, 1) == [("devices/y/state", b"on")]


@pytest.mark.parametrize("topic", ["plant/a b", "plant/", "plant/a.b", "plant/" + "a" * 300])
async def test_a_topic_that_cannot_have_its_name_is_refused(running, topic):
    async with connected(running) as client:
        client.publish(topic, b"1")
        first, body = await client.packet()
        assert (first, body[2]) == (0x40, Code.BAD_TOPIC)


async def test_a_topic_of_its_own_needs_its_own_grants(running):
    password = await secret_of(
        running, ("produce", "plant.mine"), ("consume", "plant.mine"), ("produce", "mqtt.**")
    )
    await produce(running, "plant.mine", value="0")
    async with connected(running, password=password) as client:
        await client.stores("plant/mine", b"1")
        assert await client.subscribe("plant/mine") == 1
        assert await client.subscribe("plant/+") == Code.NOT_AUTHORIZED
        for topic in ("plant/other", "plant"):
            client.publish(topic, b"1")
            first, body = await client.packet()
            assert (first, body[2]) == (0x40, Code.NOT_AUTHORIZED)


async def test_only_who_may_create_topics_creates_one_by_publishing(running):
    may_not = await secret_of(running, ("produce", "plant.**"))
    may = await secret_of(running, ("produce", "plant.**"), ("manage", "plant.**"))
    async with connected(running, password=may_not) as client:
        client.publish("plant/new", b"1")
        first, body = await client.packet()
        assert (first, body[2]) == (0x40, Code.NOT_AUTHORIZED)
    async with connected(running, password=may) as client:
        await client.stores("plant/new", b"2")
    assert await records(running, "plant.new") == [(None, "2")]


async def test_retained_messages_of_a_route_are_found(running):
    await publish(running, "devices/kept/state", b"k", retain=True)
    await publish(running, "plant/kept", b"p", retain=True)
    async with connected(running) as client:
        await client.subscribe("+/kept/#")
        assert await taken(client, 2) == [("plant/kept", b"p"), ("devices/kept/state", b"k")]


async def test_a_shared_subscription_has_the_messages_of_all_topics(running):
    async with (
        connected(running, client_id="one") as one,
        connected(running, client_id="two") as two,
    ):
        for client in (one, two):
            assert await client.subscribe("$share/all/+/s/#") == 1
        topics = ["devices/s/state", "plant/s/new", "else/s", "plant/s"]
        for topic in topics:
            await publish(running, topic, b"1")
        found = await taken(one, 2) + await taken(two, 2)
    assert sorted(topic for topic, _ in found) == sorted(topics)


async def test_a_session_misses_nothing_of_any_topic_also_over_a_new_machine(tmp_path):
    store, missed = MemoryStore(), ["plant/old", "devices/a/state", "plant/newer", "else"]
    async with serving(tmp_path / "a", ROUTES, store=store) as first:
        await publish(first, "plant/old", b"before")
        async with connected(first, client_id="away", **FOR_AN_HOUR) as client:
            await client.subscribe("#")
        await gone(first, "away")
        for topic in missed:
            await publish(first, topic, b"1")
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a/admin.key", tmp_path / "b")
    async with serving(tmp_path / "b", ROUTES, store=store, take_over=True) as second:
        await publish(second, "plant/newest", b"1")
        async with connected(second, client_id="away", **FOR_AN_HOUR) as client:
            assert client.present
            found = await taken(client, 5)
            assert sorted(found) == sorted((topic, b"1") for topic in [*missed, "plant/newest"])
            await publish(second, "plant/old", b"live")
            assert await taken(client, 1) == [("plant/old", b"live")]


async def test_a_new_route_gives_sessions_what_comes_from_then_on(tmp_path):
    store = MemoryStore()
    async with serving(tmp_path / "a", store=store) as first:
        await produce(first, "devices", key="devices/a/state", value="old")
        async with connected(first, client_id="away", **FOR_AN_HOUR) as client:
            await client.subscribe("devices/#")
            await client.subscribe("$share/g/devices/#")
        await gone(first, "away")
        await publish(first, "devices/a/state", b"in mqtt")
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a/admin.key", tmp_path / "b")
    for _ in range(2):  # the second time, the session knows the route
        async with serving(tmp_path / "b", ROUTES, store=store, take_over=True) as second:
            await publish(second, "devices/a/state", b"routed")
    async with (
        serving(tmp_path / "b", ROUTES, store=store) as third,
        connected(third, client_id="away", **FOR_AN_HOUR) as client,
    ):
        expected = [b"in mqtt", b"routed", b"routed"]
        found = [payload for _, payload in await taken(client, 6)]
        assert sorted(found) == sorted(expected * 2)
        assert await client.pong()


async def test_a_topic_that_is_deleted_ends_no_connection_and_may_be_made_again(running):
    client_of_http = running[0].client
    async with connected(running, client_id="stays", **FOR_AN_HOUR) as client:
        await client.subscribe("plant/brief")
        await publish(running, "plant/brief", b"1", b"2")
        assert len(await taken(client, 2)) == 2
        assert (await client_of_http.delete("/v1/topics/plant.brief")).is_success
        await publish(running, "plant/brief", b"again")
        assert await taken(client, 1) == [("plant/brief", b"again")]


async def test_clients_make_no_more_topics_than_so_many(running, monkeypatch):
    await publish(running, "plant/there", b"1")
    monkeypatch.setattr(mqtt_limits, "TOPICS_MAX", 1)
    async with connected(running) as client:
        client.publish("plant/more", b"1")
        first, body = await client.packet()
        assert (first, body[2]) == (0x40, Code.QUOTA)
        await client.stores("plant/there", b"2")


async def test_a_subscription_that_reads_many_topics_takes_more_than_one_place(
    running, monkeypatch
):
    """It keeps the log end of each, and so does its session."""
    monkeypatch.setattr(dispatching, "_TOPICS_OF_A_PLACE", 2)
    room = running[1].dispatcher._room
    for number in range(4):
        await publish(running, f"plant/many/{number}", b"x")
    async with connected(running, client_id="many") as client:
        before = room.used
        await client.subscribe("plant/many/+")
        # The default topic may have some, too.
        assert room.used - before == 1 + 5 // 2
        await client.subscribe("plant/many/0")
        assert room.used - before == 1 + 5 // 2 + 1 + 2 // 2
    await gone(running, "many")
    assert room.used == before

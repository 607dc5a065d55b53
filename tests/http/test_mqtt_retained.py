"""Retained MQTT messages over real sockets."""

from __future__ import annotations

import asyncio
import shutil

import pytest
import pytest_asyncio

from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code
from seb_appliance.protocols.mqtt.sending.retained import Retained
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.mqtt_client import connected, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("mqtt")) as both:
        yield both


async def found(running, topic_filter, options=1, version=5):
    """What a new subscriber is sent at once, as (topic, payload)."""
    async with connected(running, version, client_id="finder") as client:
        both = [codec.text(one) + bytes((options,)) for one in (topic_filter, "the/end")]
        given = b"\0" if version == 5 else b""
        client.send(codec.packet(codec.SUBSCRIBE, b"\0\1" + given + b"".join(both), 2))
        await client.packet()
        messages = {}
        while (message := await client.message()).topic != "the/end":
            assert message.retain
            messages[message.topic] = message.payload
        return messages


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def ended(running):
    """A retained message that comes last, because lookups are done in their order."""
    async with connected(running) as client:
        await client.stores("the/end", b"end", retain=True)


async def test_a_new_subscriber_gets_the_newest_message_that_was_published_with_the_flag(running):
    async with connected(running) as client:
        await client.stores("lamp/1", b"off", retain=True)
        await client.stores("lamp/1", b"on", retain=True)
        await client.stores("lamp/1", b"passing")
        await client.stores("lamp/2", b"on", retain=True)
        await client.stores("$lamp/3", b"on", retain=True)
    for version in (4, 5):
        both = {"lamp/1": b"on", "lamp/2": b"on"}
        assert await found(running, "lamp/+", version=version) == both
        assert await found(running, "lamp/1", version=version) == {"lamp/1": b"on"}
        assert await found(running, "lamp", version=version) == {}
    assert await found(running, "lamp/#") == both
    assert await found(running, "+/1") == {"lamp/1": b"on"}
    assert await found(running, "lamp/1/#") == {"lamp/1": b"on"}
    assert await found(running, "+/3") == {}
    assert await found(running, "$lamp/#") == {"$lamp/3": b"on"}


async def test_an_empty_message_with_the_flag_deletes_and_reaches_subscribers(running):
    async with connected(running, client_id="s") as subscriber, connected(running) as client:
        await client.stores("gone/a/b", b"x", retain=True)
        await subscriber.subscribe("gone/#")
        assert (await subscriber.message()).payload == b"x"
        await client.stores("gone/a/b", b"", retain=True)
        message = await subscriber.message()
        assert (message.payload, message.retain) == (b"", False)
    assert await found(running, "gone/#") == {}


async def test_the_options_of_a_subscription_decide_what_is_sent(running):
    never, if_new, as_published = 0x20, 0x10, 0x08
    async with connected(running, client_id="s") as subscriber, connected(running) as client:
        await client.stores("opt/1", b"kept", retain=True)
        await subscriber.subscribe("opt/1", 1 | never)
        assert await subscriber.pong()
        await subscriber.subscribe("opt/1", 1 | if_new)
        assert await subscriber.pong()
        await subscriber.subscribe("opt/+", 1 | if_new)
        assert (await subscriber.message()).retain
        await subscriber.subscribe("opt/2", 1 | as_published)
        await client.stores("opt/2", b"live", retain=True)
        assert (await subscriber.message()).retain


async def test_a_retained_message_keeps_its_properties_and_expires(running):
    given = {"user_properties": [("unit", "C")], "content_type": "text/plain"}
    async with connected(running, client_id="s") as subscriber, connected(running) as client:
        await client.stores("rich", b"1", retain=True, properties=given)
        await client.stores("brief", b"1", retain=True, properties={"message_expiry": 0})
        await subscriber.subscribe("rich")
        assert (await subscriber.message()).properties == given
    assert await found(running, "brief") == {}


async def test_retained_messages_are_bounded(running, monkeypatch):
    monkeypatch.setattr(mqtt_limits, "RETAINED_MAX", running[1].retained.count)
    async with connected(running) as client:
        client.publish("one/more", b"x", retain=True)
        assert (await client.packet())[1][2] == Code.QUOTA
        monkeypatch.setattr(mqtt_limits, "RETAINED_MAX", 1_000)
        monkeypatch.setattr(running[1].retained._room, "limit", 0)
        client.publish("one/more", b"x", retain=True)
        assert (await client.packet())[1][2] == Code.QUOTA
        monkeypatch.undo()
        monkeypatch.setattr(mqtt_limits, "RETAINED_LOOKUPS_MAX", 0)
        client.send(codec.packet(codec.SUBSCRIBE, b"\0\1\0" + codec.text("a") + b"\1", 2))
        assert (await client.packet())[1][-1] == Code.QUOTA


async def test_the_levels_of_retained_messages_count_until_they_are_gone(running):
    """A message of one byte has a level in memory for each word of its topic, unless another
    message has it already."""
    room, levels = running[1].retained._room, ["deep", *["a"] * 30]
    before = room.used
    async with connected(running) as client:
        await client.stores("/".join([*levels, "1"]), b"x", retain=True)
        first = room.used - before
        await client.stores("/".join([*levels, "2"]), b"x", retain=True)
        second = room.used - before - first
        assert first - second == 31 * 256
        await client.stores("/".join([*levels, "1"]), b"", retain=True)
        await client.stores("deep", b"", retain=True)
        await found(running, "deep/#")
        assert room.used - before == first
        await client.stores("/".join([*levels, "2"]), b"", retain=True)
    assert await found(running, "deep/#") == {}
    assert room.used == before


async def test_what_others_store_as_retained_messages_is_bounded(running, monkeypatch):
    """By HTTP nothing is refused for want of room: what there is none for is not retained."""
    retained = running[1].retained
    refusals = retained._room.refusals
    monkeypatch.setattr(retained._room, "limit", 3 * retained._room.used)
    async with connected(running) as client:
        await client.stores("flood/0", b"first", retain=True)
        for number in range(10):
            records = [{"key": f"flood/{number}", "value": "x" * retained._room.limit}]
            body = {"records": records}
            await running[0].client.post("/v1/topics/mqtt-retained/records", json=body)
        assert await found(running, "flood/9") == {}
        assert retained._room.used <= 2 * retained._room.limit
        assert retained._room.refusals > refusals
        monkeypatch.undo()
        monkeypatch.setattr(mqtt_limits, "RETAINED_MAX", retained.count // 2)
        body = {"records": [{"key": "flood/0", "value": "newer"}]}
        await running[0].client.post("/v1/topics/mqtt-retained/records", json=body)
        assert await found(running, "flood/0") == {}
        monkeypatch.undo()
        await client.stores("flood/0", b"last", retain=True)
    assert await found(running, "flood/0") == {"flood/0": b"last"}


async def test_clients_that_do_not_take_what_their_subscriptions_find_hold_a_share(
    running, monkeypatch
):
    """Each one holds a list of all that was found. Who finds no room is sent it later."""
    room = running[1].retained._lookups
    for number in range(5):
        async with connected(running) as client:
            await client.stores(f"shelf/{number}", b"x", retain=True)
    async with connected(running, client_id="lazy", receive_maximum=1) as lazy:
        await lazy.subscribe("shelf/+")
        first = await lazy.message()
        assert room.used == 5 * 8
        monkeypatch.setattr(room, "limit", room.used)
        async with connected(running, client_id="later") as later:
            await later.subscribe("shelf/+")
            assert await later.pong()
            lazy.send(codec.write_ack(codec.PUBACK, first.packet_id, 5))
            for _ in range(4):
                message = await lazy.message()
                lazy.send(codec.write_ack(codec.PUBACK, message.packet_id, 5))
            monkeypatch.undo()
            assert {(await later.message()).topic for _ in range(5)} == {
                f"shelf/{number}" for number in range(5)
            }
    assert room.used == 0


async def test_retained_messages_come_back_on_a_new_machine(tmp_path):
    store = MemoryStore()
    async with serving(tmp_path / "a", store=store) as first, connected(first) as client:
        await client.stores("kept/1", b"old", retain=True)
        await client.stores("kept/1", b"new", retain=True)
        await client.stores("kept/2", b"deleted", retain=True)
        await client.stores("kept/2", b"", retain=True)
        await client.stores("the/end", b"", retain=False)
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a/admin.key", tmp_path / "b")
    async with serving(tmp_path / "b", store=store, take_over=True) as second:
        assert second[1].retained.count == 1
        async with connected(second) as client:
            await client.subscribe("kept/#")
            assert (await client.message()).payload == b"new"


async def test_many_retained_messages_reach_a_client_that_acknowledges_slowly(running):
    async with connected(running) as client:
        for number in range(1, 301):
            client.publish(f"many/{number}", b"x" * 2_000, retain=True, packet_id=number)
        for _ in range(300):
            assert (await client.packet())[0] == 0x40
    async with connected(running, client_id="s", receive_maximum=1) as subscriber:
        await subscriber.subscribe("many/+")
        topics = set()
        for _ in range(300):
            message = await subscriber.message()
            topics.add(message.topic)
            subscriber.send(codec.write_ack(codec.PUBACK, message.packet_id, 5))
        assert len(topics) == 300


@pytest.mark.neighbours
async def test_a_wildcard_finds_100_000_topics_without_holding_the_loop(running):
    """By hand: it measures."""
    import asyncio
    import time

    from seb_appliance.protocols.mqtt.messages.reading import Row

    retained = Retained.__new__(Retained)
    retained.__dict__ |= running[1].retained.__dict__
    from seb_appliance.protocols.mqtt.sending.retained import _Level

    retained._root, retained.count = _Level(), 0
    for number in range(100_000):
        retained._put(Row(0, b"house/%d/temp" % number, b"x", None))
    longest, done = 0.0, False

    async def watch():
        nonlocal longest
        while not done:
            began = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - began)

    for topic_filter in ("house/+/temp", "#", "house/7/#"):
        longest, done = 0.0, False
        watching = asyncio.create_task(watch())
        began = time.perf_counter()
        topics = await retained._match(topic_filter)
        took_s = time.perf_counter() - began
        done = True
        await watching
        print(topic_filter, len(topics), f"{took_s * 1000:.1f} ms, longest {longest * 1000:.1f} ms")


@pytest.mark.parametrize("others", [0, 1])
async def test_a_message_that_was_acknowledged_is_found_also_by_who_subscribes_at_once(
    tmp_path, others
):
    async with serving(tmp_path) as running, connected(running) as client:
        for number in range(others):
            await client.stores(f"other/{number}", b"1", retain=True)
            assert await found_one(running, f"other/{number}") == b"1"
        retained, may_read = running[1].retained, asyncio.Event()
        read = retained._take

        async def read_late():
            await may_read.wait()
            await read()

        retained._take = read_late
        await client.stores("new", b"2", retain=True)
        asyncio.get_running_loop().call_later(0.05, may_read.set)
        assert await found_one(running, "new") == b"2"


async def found_one(running, topic):
    async with connected(running, client_id="finder") as client:
        await client.subscribe(topic)
        return (await client.message()).payload

"""MQTT over real sockets, into a running appliance."""

from __future__ import annotations

import asyncio
import struct

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.errors import ConfigurationError, OverloadedError
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, Publish
from seb_appliance.protocols.mqtt.listening import Mqtt
from seb_appliance.protocols.sockets import limits as socket_limits
from tests.support.appliance import running_appliance
from tests.support.mqtt_client import connected, raw, read_any, serving
from tests.support.mqtt_packets import connect, subscribe

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("mqtt")) as both:
        yield both


async def stored(running, topic):
    """The records with this record key."""
    answer = await running[0].client.get("/v1/topics/mqtt/records", params={"key": topic})
    return answer.json()["records"]


async def api_key(running, *grants):
    body = {"name": "device", "grants": [{"operation": o, "topics": t} for o, t in grants]}
    answer = await running[0].client.post("/v1/api-keys", json=body)
    return answer.json()


async def test_a_message_is_acknowledged_once_the_bucket_has_it(running):
    for version in (4, 5):
        async with connected(running, version) as client:
            client.publish(f"a/{version}", b"21.5", packet_id=7)
            assert await client.packet() == (0x40, b"\0\x07")
            (record,) = await stored(running, f"a/{version}")
            assert (record["key"], record["value"]) == (f"a/{version}", "21.5")


async def test_packets_behind_connect_are_taken_before_connack_is_out(running):
    async with raw(running) as client:
        client.send(connect(running[0].admin_key))
        client.publish("early", b"x")
        assert (await client.packet())[0] == 0x20
        assert await client.packet() == (0x40, b"\0\x01")


async def test_messages_are_stored_and_acknowledged_in_their_order(running):
    async with connected(running) as client:
        for number in range(1, 501):
            client.publish("order", b"%d" % number, packet_id=number)
        for number in range(1, 501):
            assert await client.packet() == (0x40, struct.pack(">H", number))
    found = await stored(running, "order")
    assert [one["value"] for one in found] == [str(number) for number in range(1, 501)]


async def test_qos_2_that_is_sent_again_is_stored_once(running):
    async with connected(running) as client:
        client.publish("twice", b"x", qos=2, packet_id=3)
        client.publish("twice", b"x", qos=2, packet_id=3, duplicate=True)
        assert await client.packet() == (0x50, b"\0\x03")
        client.publish("twice", b"x", qos=2, packet_id=3, duplicate=True)
        assert await client.packet() == (0x50, b"\0\x03")
        client.send(codec.write_ack(codec.PUBREL, 3, 5))
        assert await client.packet() == (0x70, b"\0\x03")
    assert len(await stored(running, "twice")) == 1


async def test_properties_become_headers_and_come_back(running):
    given = {
        "content_type": "text/plain",
        "response_topic": "answers/1",
        "correlation_data": b"\0\1",
        "payload_format": 1,
        "message_expiry": 60,
        "user_properties": [("unit", "C")],
    }
    async with connected(running) as client, connected(running, client_id="s") as subscriber:
        subscriber.send(subscribe("with/#"))
        assert (await subscriber.packet())[1][-1] == 1
        client.publish("with/all", b"1", properties=given)
        message = await subscriber.message()
    assert message.properties == given
    (record,) = await stored(running, "with/all")
    assert record["headers"]["content-type"] == "text/plain"
    assert record["headers"]["unit"] == "C"


async def test_a_repeated_user_property_is_refused_and_not_lost_silently(running):
    async with connected(running) as client:
        client.publish("rep", b"1", properties={"user_properties": [("a", "1"), ("a", "2")]})
        first, body = await client.packet()
        assert (first, body[2]) == (0x40, Code.REFUSED)


async def test_a_topic_alias_stands_for_its_topic(running):
    async with connected(running) as client:
        client.publish("alias", b"1", packet_id=1, properties={"topic_alias": 5})
        client.publish("", b"2", packet_id=2, properties={"topic_alias": 5})
        assert [(await client.packet())[1] for _ in range(2)] == [b"\0\1", b"\0\2"]
        assert len(await stored(running, "alias")) == 2
        client.publish("", b"3", packet_id=3, properties={"topic_alias": 6})
        assert (await client.packet())[1][0] == Code.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (connect(None), Code.NOT_AUTHORIZED),
        (connect("seb_wrong"), Code.BAD_PASSWORD),
        (connect("x", auth_method="SCRAM"), Code.BAD_AUTHENTICATION),
        (connect("x", client_id="c" * 257), Code.BAD_CLIENT_ID),
        (connect("x", version=3), None),
    ],
)
async def test_who_may_not_connect_is_told_why(running, sent, code):
    async with raw(running) as client:
        client.send(sent)
        first, body = await client.packet()
        assert first == 0x20
        assert body[1] == (1 if code is None else code)
        assert await client.packet() == (0, b"")


async def test_grants_hold_for_each_message_and_filter(running):
    key = await api_key(running, ("produce", "mqtt.mine.**"), ("consume", "mqtt.mine.*"))
    async with connected(running, password=key["secret"]) as client:
        client.publish("mine/1", b"1")
        assert await client.packet() == (0x40, b"\0\1")
        client.publish("other/1", b"1", packet_id=2)
        first, body = await client.packet()
        assert (first, body[2]) == (0x40, Code.NOT_AUTHORIZED)
        for topic_filter, code in (
            ("mine/+", 1),
            ("mine/#", Code.NOT_AUTHORIZED),
            ("#", Code.NOT_AUTHORIZED),
            ("mine.x", Code.NOT_AUTHORIZED),
            ("$share/g/mine/+", 1),
            ("$share/g/mine/#", Code.NOT_AUTHORIZED),
            ("a#", Code.BAD_FILTER),
        ):
            client.send(subscribe(topic_filter))
            assert (await client.packet())[1][-1] == code, topic_filter
    async with connected(running, 4, password=key["secret"]) as client:
        client.publish("other/1", b"1")
        assert await client.packet() == (0, b"")


async def test_an_api_key_that_is_revoked_ends_its_connections(running):
    key = await api_key(running, ("produce", "mqtt.**"))
    async with connected(running, password=key["secret"]) as client:
        await running[0].client.delete(f"/v1/api-keys/{key['api_key_id']}")
        client.publish("late", b"1")
        first, body = await client.packet()
        assert (first, body[0]) == (0xE0, Code.NOT_AUTHORIZED)
    assert await stored(running, "late") == []


async def test_a_will_is_published_unless_the_client_says_goodbye(running):
    async with connected(running, client_id="watch") as watch:
        watch.send(subscribe("will/#"))
        await watch.packet()
        for goodbye in (codec.packet(codec.DISCONNECT, b""), b""):
            will = Publish(f"will/{len(goodbye)}", b"gone", 1)
            async with connected(running, client_id="mortal", will=will) as mortal:
                mortal.send(goodbye)
                if goodbye:
                    assert await mortal.packet() == (0, b"")
        assert (await watch.message()).topic == "will/0"


async def test_a_newer_connection_takes_the_client_id_over(running):
    async with (
        connected(running, client_id="one") as older,
        connected(running, client_id="one") as newer,
    ):
        first, body = await older.packet()
        assert (first, body[0]) == (0xE0, Code.TAKEN_OVER)
        newer.send(codec.packet(codec.PINGREQ, b""))
        assert await newer.packet() == (0xD0, b"")


async def test_subscribers_get_what_matches_from_mqtt_and_http(running):
    async with connected(running, 4, client_id="s") as old, connected(running) as client:
        old.send(subscribe("house/+/temp", 0, version=4))
        assert await old.packet() == (0x90, b"\0\x09\0")
        client.publish("house/a/temp", b"1", packet_id=1)
        client.publish("house/a/other", b"2", packet_id=2)
        client.publish("house/b/temp", b"3", packet_id=3)
        assert [(await old.message()).payload for _ in range(2)] == [b"1", b"3"]
        record = {"records": [{"key": "house/c/temp", "value": "4"}]}
        await running[0].client.post("/v1/topics/mqtt/records", json=record)
        assert (await old.message()).payload == b"4"
        old.send(codec.packet(codec.UNSUBSCRIBE, b"\0\x0a" + codec.text("house/+/temp"), 2))
        assert await old.packet() == (0xB0, b"\0\x0a")


async def test_a_record_that_no_mqtt_client_could_send_stops_nobodys_messages(running):
    async with connected(running, client_id="good") as good:
        await good.subscribe("poisoned/#")
        headers = {"mqtt-expires": "9" * 5_000, "mqtt-qos": "x", "mqtt-payload-format": "\0"}
        for value, given in (("poison", headers), ("after", {})):
            record = {"key": "poisoned/a", "value": value, "headers": given}
            body = {"records": [record]}
            sent = await running[0].client.post("/v1/topics/mqtt/records", json=body)
            assert sent.status_code == 201
        assert [(await good.message()).payload for _ in range(2)] == [b"poison", b"after"]


async def test_a_bug_in_delivery_ends_the_subscribers_connections_so_that_they_come_again(
    running, monkeypatch
):
    def fail(*_):
        raise ValueError("a bug")

    async with connected(running, client_id="ended") as client:
        await client.subscribe("bug")
        with monkeypatch.context() as patched:
            patched.setattr(running[1].logs, "as_publish", fail)
            body = {"records": [{"key": "bug", "value": "x"}]}
            await running[0].client.post("/v1/topics/mqtt/records", json=body)
            assert (await client.packet())[0] == 0xE0
    async with connected(running, client_id="ended") as client:
        await client.subscribe("bug")
        await running[0].client.post("/v1/topics/mqtt/records", json=body)
        assert (await client.message()).payload == b"x"


async def test_a_subscriber_gets_at_most_its_receive_maximum_at_once(running):
    async with connected(running, client_id="s", receive_maximum=2) as subscriber:
        subscriber.send(subscribe("flow"))
        await subscriber.packet()
        async with connected(running) as client:
            for number in range(1, 6):
                client.publish("flow", b"%d" % number, packet_id=number)
            for _ in range(5):
                await client.packet()
        first, second = await subscriber.message(), await subscriber.message()
        subscriber.send(codec.packet(codec.PINGREQ, b""))
        assert await subscriber.packet() == (0xD0, b"")
        subscriber.send(codec.write_ack(codec.PUBACK, first.packet_id, 5))
        assert (await subscriber.message()).payload == b"3"
        assert second.payload == b"2"


async def test_a_slow_subscriber_gets_everything_later_and_delays_nobody(running):
    async with (
        connected(running, client_id="slow", receive_maximum=1) as slow,
        connected(running, client_id="quick") as quick,
        connected(running) as client,
    ):
        for one in (slow, quick):
            one.send(subscribe("much"))
            await one.packet()
        for number in range(1, 51):
            client.publish("much", b"%d" % number, packet_id=number)
        for _ in range(50):
            await quick.message()
        for number in range(1, 51):
            message = await slow.message()
            assert message.payload == b"%d" % number
            slow.send(codec.write_ack(codec.PUBACK, message.packet_id, 5))
        await client.packet()
        client.publish("much", b"live")
        assert (await slow.message()).payload == b"live"


async def test_no_local_and_subscription_identifiers(running):
    async with connected(running, client_id="self") as client:
        given = codec.properties({"subscription_id": [7]})
        body = b"\0\x09" + given + codec.text("loop/#") + bytes((1 | 4,))
        client.send(codec.packet(codec.SUBSCRIBE, body, 2))
        await client.packet()
        client.publish("loop/1", b"mine")
        assert (await client.packet())[0] == 0x40
        async with connected(running, client_id="other") as other:
            other.publish("loop/1", b"theirs")
            await other.packet()
        message = await client.message()
        assert (message.payload, message.properties["subscription_id"]) == (b"theirs", [7])


async def test_messages_wait_while_there_is_no_room(running, monkeypatch):
    appends, is_full = type(running[0].appliance.broker.appends), asyncio.Event()
    real = appends.transact

    async def append(self, *given, **named):
        if not is_full.is_set():
            is_full.set()
            raise OverloadedError("there is no room")
        return await real(self, *given, **named)

    monkeypatch.setattr(appends, "transact", append)
    monkeypatch.setattr(appends, "append_nowait", lambda *_: False)
    async with connected(running) as client:
        client.publish("room", b"1", packet_id=1)
        client.publish("room", b"2", packet_id=2)
        assert [(await client.packet())[1] for _ in range(2)] == [b"\0\1", b"\0\2"]
    assert [one["value"] for one in await stored(running, "room")] == ["1", "2"]


async def test_a_message_that_finds_no_room_for_long_ends_the_connection(running, monkeypatch):
    async def append(*_given, **_named):
        raise OverloadedError("there is no room")

    appends = type(running[0].appliance.broker.appends)
    monkeypatch.setattr(appends, "transact", append)
    monkeypatch.setattr(appends, "append_nowait", lambda *_: False)
    monkeypatch.setattr(socket_limits, "NO_ROOM_S_MAX", 0)
    async with connected(running) as client:
        client.publish("room", b"1")
        first, body = await client.packet()
        assert (first, body[0]) == (0xE0, Code.QUOTA)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x30\xff\xff\xff\xff", Code.MALFORMED),
        (b"\x32\xff\xff\xff\x7f", Code.TOO_LARGE),
        (b"\x36\x05\0\x01a\0\0", Code.MALFORMED),
        (b"\x80\x02\0\x01", Code.MALFORMED),
        (b"\x82\x03\0\x01\0", Code.PROTOCOL_ERROR),
        (b"\x10\0", Code.PROTOCOL_ERROR),
        (b"\xf0\0", Code.PROTOCOL_ERROR),
        (b"\x30\x05\0\x03a+b", Code.MALFORMED),
        (codec.write_publish(Publish("a/#", b""), 5), Code.BAD_TOPIC),
        (codec.write_publish(Publish("a" * 1025, b""), 5), Code.BAD_TOPIC),
        (codec.write_publish(Publish("/" * 32, b""), 5), Code.BAD_TOPIC),
        (codec.write_publish(Publish("a", b"", properties={"topic_alias": 101}), 5),
         Code.BAD_ALIAS),
    ],
)  # fmt: skip
async def test_a_hostile_packet_ends_its_connection_with_a_reason(running, sent, code):
    async with connected(running) as good, connected(running, client_id="bad") as bad:
        bad.send(sent)
        first, body = await bad.packet()
        assert (first, body[0]) == (0xE0, code)
        good.send(codec.packet(codec.PINGREQ, b""))
        assert await good.packet() == (0xD0, b"")


async def test_many_filters_of_one_packet_are_answered_in_order(running):
    async with connected(running) as client:
        filters = [f"many/{i}" for i in range(300)]
        filters[7] = "many/#/7"
        body = b"\0\1\0" + b"".join(codec.text(one) + b"\1" for one in filters)
        client.send(codec.packet(codec.SUBSCRIBE, body, 2), codec.packet(codec.PINGREQ, b""))
        first, body = await client.packet()
        assert (first, len(body)) == (0x90, 3 + len(filters))
        assert [i for i, code in enumerate(body[3:]) if code != 1] == [7]
        assert (await client.packet())[0] == 0xD0
        body = b"\0\2\0" + b"".join(map(codec.text, filters))
        client.send(codec.packet(codec.UNSUBSCRIBE, body, 2))
        first, body = await client.packet()
        assert (first, [i for i, code in enumerate(body[3:]) if code]) == (0xB0, [7])


async def test_a_client_that_sends_nothing_is_ended(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "CONNECT_S_MAX", 0.02)
    async with raw(running) as silent:
        assert await silent.packet() == (0, b"")
    monkeypatch.setattr(socket_limits, "CONNECT_S_MAX", 10)
    monkeypatch.setattr(mqtt_limits, "KEEP_ALIVE_S_MAX", 0.02)
    async with raw(running, 4) as silent:
        silent.send(connect(running[0].admin_key, 4, keep_alive_s=0))
        assert (await silent.packet())[0] == 0x20
        assert await silent.packet() == (0, b"")


async def test_a_packet_that_does_not_end_ends_the_connection(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "UNFINISHED_S_MAX", 0.02)
    async with connected(running) as client:
        client.send(b"\x32\x7f\0")
        first, body = await client.packet()
        assert (first, body[0]) == (0xE0, Code.KEEP_ALIVE)


async def test_connections_and_unfinished_messages_are_bounded(running, monkeypatch):
    monkeypatch.setattr(mqtt_limits, "IN_FLIGHT_MAX", 2)
    async with connected(running) as client:
        for packet_id in (1, 2, 3):
            client.publish("open", b"", qos=2, packet_id=packet_id)
        kinds = [(await client.packet())[0] for _ in range(1)]
        while kinds[-1] == 0x50:
            kinds.append((await client.packet())[0])
        assert kinds[-1] == 0xE0
    monkeypatch.setattr(running[1].room, "limit", 0)
    async with raw(running) as client:
        client.send(connect(running[0].admin_key))
        assert (await client.packet())[1][1] == Code.QUOTA


async def test_connack_names_what_this_server_lacks(running):
    async with raw(running) as client:
        client.send(connect(running[0].admin_key, client_id="", session_expiry=2**32 - 1))
        _, body = await client.packet()
        told = read_any(codec.Reader(body[2:]))
        assert "shared_available" not in told  # they are
        assert told["session_expiry"] == mqtt_limits.SESSION_EXPIRY_S_MAX
        assert told["assigned_client_id"].startswith("seb-")
        assert told["user_properties"] == [("Seb-Durability", "memory")]


async def test_the_port_opens_by_its_setting_and_tells_if_it_is_taken(running, tmp_path):
    second = Mqtt.__new__(Mqtt)
    second.__dict__ |= running[1].__dict__ | {"_address": ("127.0.0.1", running[1].port)}
    with pytest.raises(ConfigurationError, match="mqtt_port"):
        await second.start()
    for settings in ({"mqtt_tls_certificate": "a"}, {"mqtt_tls_client_ca": "a"}):
        with pytest.raises(ConfigurationError, match="mqtt_tls"):
            async with running_appliance(tmp_path, **settings):
                pass


async def test_the_metrics_count_what_happened(running):
    def counted() -> dict[tuple[str, ...], float]:
        return {(one.name, *one.labels.values()): one.value for one in running[1].samples()}

    before = counted()
    async with connected(running, client_id="s") as subscriber, connected(running) as client:
        subscriber.send(subscribe("counted"))
        await subscriber.packet()
        client.publish("counted", b"x")
        assert (await client.packet())[0] == 0x40
        await subscriber.message()
    after = counted()
    for name in (("seb_mqtt_messages_total", "stored"), ("seb_mqtt_deliveries_total", "sent")):
        assert after[name] == before.get(name, 0) + 1
    assert "seb_mqtt_refusals_total" in {name for name, *_ in after}


async def test_a_connect_that_is_too_long_ends_the_connection(running):
    async with raw(running) as client:
        client.send(b"\x10\xff\xff\xff\x7f")
        assert await client.packet() == (0, b"")


async def test_who_has_no_api_key_yet_takes_no_room_of_those_who_have(running):
    broker = running[0].appliance.broker
    async with raw(running) as client:
        client.send(b"\x10\xff\xff\x07" + bytes(100_000))  # of 128 KiB
        async with asyncio.timeout(30):
            while broker.strangers.held_by("127.0.0.1") < 100_000:
                await asyncio.sleep(0)
        assert broker.pending.used < 100_000  # other tests append here


async def test_a_connection_is_read_no_further_while_much_is_in_flight(running, monkeypatch):
    monkeypatch.setattr(mqtt_limits, "IN_FLIGHT_BYTES_MAX", 1)
    async with connected(running, 4) as client:
        for number in range(1, 11):
            client.publish("slowly", b"x", packet_id=number)
        for number in range(1, 11):
            assert await client.packet() == (0x40, struct.pack(">H", number))


async def test_a_client_that_takes_nothing_is_cut_off(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "CLOSE_S_MAX", 0.02)
    async with connected(running, client_id="deaf") as client:
        client.writer.transport.pause_reading()
        (served,) = [one for one in running[1]._all if one.client_id == "deaf"]
        served.transport.write(b"x" * 16 * limits.MIB)
        served.end("it is enough", Code.QUOTA)
        async with asyncio.timeout(5):
            while served in running[1]._all:
                await asyncio.sleep(0)


async def test_subscriptions_are_bounded(running, monkeypatch):
    monkeypatch.setattr(running[1].dispatcher._room, "limit", 2)
    async with connected(running) as client:
        codes = []
        for number in range(3):
            client.send(subscribe(f"bound/{number}"))
            codes.append((await client.packet())[1][-1])
        assert codes == [1, Code.QUOTA, Code.QUOTA]  # half of them stay for other API keys


async def test_a_subscriber_that_takes_aliases_gets_each_topic_once(running):
    async with connected(running, client_id="short", topic_alias_maximum=2) as client:
        await client.subscribe("alias/#")
        async with connected(running, client_id="long") as other:
            for topic in ("alias/a", "alias/a", "alias/b", "alias/c", "alias/b"):
                await other.stores(topic, b"x")
        found = [await client.message() for _ in range(5)]
        told = [(one.topic, one.properties.get("topic_alias")) for one in found]
        assert told == [("alias/a", 1), ("", 1), ("alias/b", 2), ("alias/c", None), ("", 2)]

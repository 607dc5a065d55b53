"""MQTT sessions that outlive their connections, QoS 2 to subscribers, and delayed wills."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest
import pytest_asyncio

from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, Publish
from seb_appliance.protocols.mqtt.sessions import _NOBODY
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliance import hold_creates
from tests.support.mqtt_client import connected, raw, serving
from tests.support.mqtt_packets import connect

pytestmark = pytest.mark.asyncio(loop_scope="module")
YEARS_NS = 10 * 365 * 24 * 3600 * 10**9
FOR_AN_HOUR = {"clean_start": False, "session_expiry": 3_600}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("mqtt")) as both:
        yield both


def kept(version=5):
    return FOR_AN_HOUR if version == 5 else {"version": 4, "clean_start": False}


async def publish(running, topic, *payloads, qos=1, **given):
    async with connected(running, client_id="publisher") as client:
        for number, payload in enumerate(payloads, 1):
            client.publish(topic, payload, qos=qos, packet_id=number, **given)
        for _ in payloads:
            assert (await client.packet())[0] == (0x40 if qos == 1 else 0x50)


async def gone(running, client_id):
    """The appliance knows that the connection has ended."""
    while any(one.client_id == client_id for one in running[1]._all):
        await asyncio.sleep(0)


async def committed(running, client_id, offset):
    """Wait until the group of the session has this offset."""
    broker = running[0].appliance.broker
    topic_id = broker.topics.get("mqtt").topic_id
    group = running[1].sessions.find(client_of(running, client_id)).group
    while broker.groups.committed_offset(group, topic_id) != offset:
        await asyncio.sleep(0)


def ack(client, message, kind=codec.PUBACK):
    client.send(codec.write_ack(kind, message.packet_id, client.version))


def client_of(running, client_id):
    return running[0].admin_key.split("_")[1], client_id


@pytest.mark.parametrize("version", [4, 5])
async def test_a_client_that_returns_gets_what_it_missed_in_order(running, version):
    name = f"away{version}"
    async with connected(running, client_id=name, **kept(version)) as client:
        assert not client.present
        await client.subscribe(f"{name}/+")
    await gone(running, name)
    await publish(running, f"{name}/1", *(b"%d" % i for i in range(900)), qos=1)
    await publish(running, f"{name}/1", b"expired", properties={"message_expiry": 0})
    await publish(running, "other", b"x")
    async with connected(running, client_id=name, **kept(version)) as client:
        assert client.present
        for number in range(900):
            message = await client.message()
            assert message.payload == b"%d" % number
            ack(client, message)
        await publish(running, f"{name}/1", b"live")
        assert (await client.message()).payload == b"live"


async def test_what_was_not_acknowledged_is_sent_again_with_dup_and_the_rest_is_not(running):
    async with connected(running, client_id="again", **kept()) as client:
        await client.subscribe("again")
        await publish(running, "again", b"1", b"2", b"3")
        sent = [await client.message() for _ in range(3)]
        ack(client, sent[1])
        assert await client.pong()
    await gone(running, "again")
    async with connected(running, client_id="again", **kept()) as client:
        for message in (sent[0], sent[2]):
            first, body = await client.packet()
            assert first == 0x3A  # DUP, QoS 1
            assert message.payload == body[-1:]
            assert message.packet_id == int.from_bytes(body[7:9], "big")
            ack(client, message)
        assert await client.pong()
    await gone(running, "again")
    async with connected(running, client_id="again", **kept()) as client:
        assert client.present
        assert await client.pong()


async def test_a_session_comes_back_on_a_new_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt_limits, "COMMIT_S", 0)
    store = MemoryStore()
    async with serving(tmp_path / "a", store=store) as first:
        async with connected(first, client_id="burnt", **kept()) as client:
            await client.subscribe("burnt/#", 2)
            await publish(first, "burnt/1", b"acknowledged", b"sent")
            ack(client, await client.message())
            assert (await client.message()).payload == b"sent"
        await gone(first, "burnt")
        await publish(first, "burnt/1", b"missed")
        await committed(first, "burnt", 1)
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a/admin.key", tmp_path / "b")
    async with (
        serving(tmp_path / "b", store=store, take_over=True) as second,
        connected(second, client_id="burnt", **kept()) as client,
    ):
        assert client.present
        assert [(await client.message()).payload for _ in range(2)] == [b"sent", b"missed"]


async def test_a_lease_of_somebody_else_on_its_group_keeps_no_client_out(running):
    seb = running[0]
    body = {"name": "s", "grants": [{"operation": "consume", "topics": "elsewhere"}]}
    made = (await seb.client.post("/v1/api-keys", json=body)).json()
    group = f"mqtt.{client_of(running, 'leased')[0]}.leased"
    async with seb.client_with(made["secret"]) as stranger:
        lease = {"holder": "stranger", "ttl_ms": 60_000}
        got = await stranger.post(f"/v1/groups/{group}/lease", json=lease)
        assert got.status_code == 200
    await publish(running, "leased", b"before")
    async with connected(running, client_id="leased", **kept()) as client:
        assert await client.subscribe("leased") == 1
        await publish(running, "leased", b"x")
        assert (await client.message()).payload == b"x"


@pytest.mark.parametrize("member", ["filters", "shared"])
async def test_a_session_that_somebody_else_wrote_does_not_prevent_the_start(tmp_path, member):
    store = MemoryStore()
    bad = {"topic_filter": {"filters": "a#", "shared": "$share/+/a"}[member], "qos": 9}
    stored = {"expiry_s": 60, "filters": [], member: [[bad, 0]]}
    async with serving(tmp_path, store=store) as (seb, _):
        body = {"records": [{"key": "somebody/c", "value": stored}]}
        await seb.client.post("/v1/topics/mqtt-sessions/records", json=body)
        await seb.client.post(
            "/v1/topics/mqtt-retained/records",
            json={"records": [{"key": "r", "value": "x", "headers": {"mqtt-expires": "9" * 5000}}]},
        )
    async with serving(tmp_path, store=store) as both, connected(both) as client:
        await client.subscribe("r")
        assert (await client.message()).payload == b"x"


async def test_sessions_that_somebody_else_wrote_are_bounded(tmp_path, monkeypatch):
    store, large = MemoryStore(), 5 * mqtt_limits.SESSION_BYTES_MAX
    async with serving(tmp_path, store=store) as (seb, _):
        for number in range(20):
            value = {"expiry_s": 3_600, "filters": [], "routes": []}
            records = [{"key": f"somebody/{number % 10}", "value": value}]
            records.append({"key": f"large/{number}", "value": value | {"more": "x" * large}})
            body = {"records": records}
            answer = await seb.client.post("/v1/topics/mqtt-sessions/records", json=body)
            assert answer.status_code == 201
    with monkeypatch.context() as small:
        small.setattr(mqtt_limits, "SESSIONS_BYTES_MAX", 2_700)
        async with serving(tmp_path, store=store) as both:
            assert both[1].sessions.count == 5
    async with serving(tmp_path, store=store) as both:
        assert both[1].sessions.count == 10


async def test_clean_start_and_an_expiry_of_0_end_a_session(running):
    sessions = running[1].sessions
    before = sessions.count
    for ended in ("by clean start", "by disconnect"):
        async with connected(running, client_id="brief", **kept()) as client:
            await client.subscribe("brief")
            assert sessions.count == before + 1
            if ended == "by disconnect":
                given = bytes((0,)) + codec.properties({"session_expiry": 0})
                client.send(codec.packet(codec.DISCONNECT, given))
        await gone(running, "brief")
        await publish(running, "brief", b"missed")
        clean = ended == "by clean start"
        async with connected(running, client_id="brief", clean_start=clean) as client:
            assert not client.present
            assert await client.pong()
        assert sessions.count == before
    while (await running[0].client.get("/v1/groups")).text.count(".brief"):
        pass  # the group goes with the session


@pytest.mark.parametrize("ahead_ns", [YEARS_NS, -YEARS_NS])
async def test_a_clock_that_jumps_ends_no_session(running, monkeypatch, ahead_ns):
    sessions, right_ns = running[1].sessions, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + min(ahead_ns, 0))
    async with connected(running, client_id=f"steady{ahead_ns}", **kept()) as client:
        await client.subscribe("steady")
    await gone(running, f"steady{ahead_ns}")
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + max(ahead_ns, 0))
    await sessions._sweep()
    assert sessions.find(client_of(running, f"steady{ahead_ns}")) is not None


async def test_a_session_ends_after_its_time(running):
    sessions = running[1].sessions
    async with connected(running, client_id="late", **kept()) as client:
        await client.subscribe("late")
    await gone(running, "late")
    session = sessions.find(client_of(running, "late"))
    session.until_us = 0
    before = sessions.count
    await sessions._sweep()
    await asyncio.gather(*sessions._ending.values())
    assert sessions.count == before - 1
    async with connected(running, client_id="late", **kept()) as client:
        assert not client.present


async def test_a_session_without_subscriptions_is_not_stored(running):
    async with connected(running, client_id="bare", **kept()):
        pass
    await gone(running, "bare")
    async with connected(running, client_id="bare", **kept()) as client:
        assert client.present
        params = {"key": f"{client_of(running, '')[0]}/bare"}
        url = "/v1/topics/mqtt-sessions/records"
        assert (await running[0].client.get(url, params=params)).json()["records"] == []
        await client.subscribe("bare")
        assert (await running[0].client.get(url, params=params)).json()["records"]
        await publish(running, "bare", b"1")
        assert (await client.message()).payload == b"1"


async def test_sessions_are_bounded(running, monkeypatch):
    monkeypatch.setattr(running[1].sessions._room, "limit", 0)
    async with raw(running) as client:
        client.send(connect(running[0].admin_key, client_id="many", **kept()))
        assert (await client.packet())[1][1] == Code.QUOTA


async def test_a_session_that_was_to_end_cannot_be_prolonged_at_the_end(running):
    async with connected(running) as client:
        given = bytes((0,)) + codec.properties({"session_expiry": 60})
        client.send(codec.packet(codec.DISCONNECT, given))
        assert (await client.packet())[1][0] == Code.PROTOCOL_ERROR


async def test_a_newer_connection_takes_the_session_over(running):
    async with connected(running, client_id="moved", **kept()) as older:
        await older.subscribe("moved")
        async with connected(running, client_id="moved", **kept()) as newer:
            assert newer.present
            await publish(running, "moved", b"1")
            assert (await newer.message()).payload == b"1"


async def test_of_two_that_wait_for_the_end_of_a_session_each_has_one_of_its_own(
    running, monkeypatch
):
    given = {"clean_start": True, "session_expiry": 3_600}
    async with connected(running, client_id="twice", **kept()) as client:
        await client.subscribe("twice")
    arrived, go_on = hold_creates(running[0], monkeypatch)
    async with raw(running) as first, raw(running) as second:
        for waiting, one in enumerate((first, second), 1):
            one.send(connect(running[0].admin_key, client_id="twice", **given))
            while sum(each._starting is not None for each in running[1]._all) < waiting:
                await asyncio.sleep(0)
        await arrived.wait()
        go_on.set()
        for one in (first, second):
            kind, body = await one.packet()
            assert (kind, *body[:2]) == (0x20, 0, Code.SUCCESS)
        kind, body = await first.packet()
        assert (kind, body[0]) == (0xE0, Code.TAKEN_OVER)
        session = running[1].sessions.find(client_of(running, "twice"))
        assert session in running[1].sessions._connected
        assert session.until_us is None


async def test_a_slow_client_with_a_session_reads_from_the_log(running):
    given = kept() | {"receive_maximum": 2}
    async with connected(running, client_id="slow", **given) as client:
        await client.subscribe("slow")
        await publish(running, "slow", *(b"%d" % i for i in range(50)))
        for number in range(50):
            message = await client.message()
            assert message.payload == b"%d" % number
            ack(client, message)
        await publish(running, "slow", b"live")
        assert (await client.message()).payload == b"live"


async def test_qos_2_reaches_a_subscriber_once_also_after_a_new_connection(running):
    async with connected(running, client_id="once", **kept()) as client:
        assert await client.subscribe("once", 2) == 2
        await publish(running, "once", b"1", b"2", qos=2)
        first, second = await client.message(), await client.message()
        assert (first.qos, second.qos) == (2, 2)
        ack(client, first, codec.PUBREC)
        assert await client.packet() == (0x62, b"\0" + bytes((first.packet_id,)))
    await gone(running, "once")
    async with connected(running, client_id="once", **kept()) as client:
        assert await client.packet() == (0x62, b"\0" + bytes((first.packet_id,)))
        assert (await client.packet())[0] == 0x3C  # DUP, QoS 2
        ack(client, first, codec.PUBCOMP)
        ack(client, second, codec.PUBREC)
        assert (await client.packet())[0] == 0x62
        ack(client, second, codec.PUBCOMP)
        client.send(codec.write_ack(codec.PUBREC, 99, 5))
        assert (await client.packet())[1][2] == Code.NO_PACKET_ID
    await gone(running, "once")
    async with connected(running, client_id="once", **kept()) as client:
        assert await client.pong()


async def test_qos_2_that_is_sent_again_on_a_new_connection_is_stored_once(running):
    async with connected(running, client_id="in", **kept()) as client:
        await client.subscribe("nothing")
        client.publish("in/1", b"x", qos=2, packet_id=3)
        assert (await client.packet())[0] == 0x50
    async with connected(running, client_id="in", **kept()) as client:
        client.publish("in/1", b"x", qos=2, packet_id=3, duplicate=True)
        assert (await client.packet())[0] == 0x50
        client.send(codec.write_ack(codec.PUBREL, 3, 5))
        assert (await client.packet())[0] == 0x70
    answer = await running[0].client.get("/v1/topics/mqtt/records", params={"key": "in/1"})
    assert len(answer.json()["records"]) == 1


async def test_messages_that_are_not_released_take_a_share_of_memory(running, monkeypatch):
    """Of QoS 2: all but the first few, also while the client is away."""
    room = running[1].sessions._unfinished
    before = room.used
    async with connected(running, client_id="unreleased", **kept()) as client:
        for number in range(1, 21):
            client.publish("unreleased", b"x", qos=2, packet_id=number)
        for _ in range(20):
            assert (await client.packet())[0] == 0x50
    await gone(running, "unreleased")
    assert room.used - before >= 4 * 160
    async with connected(running, client_id="unreleased", **kept()) as client:
        monkeypatch.setattr(room, "limit", 0)
        for number in range(1, 6):
            client.send(codec.write_ack(codec.PUBREL, number, 5))
            assert (await client.packet())[0] == 0x70
        assert room.used == before
        client.publish("unreleased", b"x", qos=2, packet_id=30)
        assert (await client.packet())[0] == 0x50
        client.publish("unreleased", b"x", qos=2, packet_id=31)
        assert (await client.packet())[1][0] == Code.QUOTA
    await gone(running, "unreleased")
    async with connected(running, client_id="unreleased", clean_start=True):
        assert room.used == before


async def test_the_subscriptions_of_a_session_are_bounded(running, monkeypatch):
    monkeypatch.setattr(mqtt_limits, "SESSION_BYTES_MAX", 200)
    async with connected(running, client_id="greedy", **kept()) as client:
        await client.subscribe("a")
        client.send(codec.packet(codec.SUBSCRIBE, b"\0\1\0" + codec.text("b" * 200) + b"\1", 2))
        first, body = await client.packet()
        assert (first, body[0]) == (0xE0, Code.QUOTA)


async def test_a_delayed_will_is_published_unless_its_client_returns(running):
    will = Publish("will/delayed", b"gone", 1, properties={"will_delay": 600})
    client = client_of(running, "mortal")
    async with connected(running, client_id="watch") as watch:
        await watch.subscribe("will/delayed")
        async with connected(running, client_id="mortal", will=will, **kept()):
            pass
        await gone(running, "mortal")
        assert client in running[1]._delayed
        async with connected(running, client_id="mortal", will=will, **kept()):
            assert client not in running[1]._delayed
        await gone(running, "mortal")
        running[1].will_is_due(client)  # as its timer does
        assert (await watch.message()).payload == b"gone"
        async with connected(running, client_id="mortal", will=will, **kept()):
            pass
        await gone(running, "mortal")
        async with connected(running, client_id="mortal"):  # ends the session
            assert (await watch.message()).payload == b"gone"


async def test_messages_without_acknowledgements_take_a_share_of_memory(running, monkeypatch):
    """All but the first few; also while the client is away. Further ones wait in the log."""
    room = running[1].sessions._unfinished
    async with connected(running, client_id="hoarder", **kept()) as client:
        await client.subscribe("hoard")
        before = room.used
        await publish(running, "hoard", *(b"%d" % n for n in range(20)))
        first = [await client.message() for _ in range(20)]
        assert room.used - before >= 4 * 160
    await gone(running, "hoarder")
    assert room.used - before >= 4 * 160
    async with connected(running, client_id="hoarder", **kept()) as client:
        again = [await client.message() for _ in range(20)]
        assert [one.payload for one in again] == [one.payload for one in first]
        monkeypatch.setattr(room, "limit", 0)
        await publish(running, "hoard", b"20", b"21")
        assert await client.pong()
        for message in again[:6]:
            ack(client, message)
        assert (await client.message()).payload == b"20"
        assert room.used == before
        for message in again[6:]:
            ack(client, message)
        assert (await client.message()).payload == b"21"


async def test_a_client_that_takes_one_message_at_a_time_has_few_in_memory(running, monkeypatch):
    """Thousands of clients may come back at one time, and take nothing."""
    read, counts = running[1].logs.read, list[int]()

    async def counted(*given):
        found = await read(*given)
        counts.append(len(found[0]))
        return found

    async with connected(running, client_id="crawling", **kept()) as client:
        await client.subscribe("crawl")
    await gone(running, "crawling")
    await publish(running, "crawl", *(b"%d" % n for n in range(100)))
    monkeypatch.setattr(running[1].logs, "read", counted)
    async with connected(running, client_id="crawling", receive_maximum=1, **kept()) as client:
        for n in range(100):
            message = await client.message()
            assert message.payload == b"%d" % n
            ack(client, message)
        assert await client.pong()
    assert max(counts) <= 16


async def test_wills_are_bounded_by_their_bytes(running, monkeypatch):
    """Also those whose clients are away, until they are stored or given up."""
    room = running[1].wills
    will = Publish("will/large", b"w" * 10_000, 1, properties={"will_delay": 600})
    client = client_of(running, "large")
    async with connected(running, client_id="watch") as watch:
        await watch.subscribe("will/large")
        async with connected(running, client_id="large", will=will, **kept()):
            assert 10_000 < room.used < 11_000
        await gone(running, "large")
        assert room.used > 10_000
        monkeypatch.setattr(room, "limit", 25_000)
        async with raw(running) as other:
            other.send(connect(running[0].admin_key, client_id="other", will=will, **kept()))
            assert (await other.packet())[1][1] == Code.QUOTA
        running[1].will_is_due(client)
        assert (await watch.message()).topic == "will/large"
        assert room.used == 0
    async with connected(running, client_id="polite", will=will) as polite:
        assert room.used > 10_000
        polite.send(codec.packet(codec.DISCONNECT, b""))
        await gone(running, "polite")
    assert room.used == 0
    async with connected(running, client_id="large", will=will, **kept()):
        pass
    await gone(running, "large")
    async with connected(running, client_id="large", **kept()):
        assert room.used == 0  # its client is back


async def test_a_commit_on_its_way_does_not_refuse_a_subscription(running, monkeypatch):
    monkeypatch.setattr(mqtt_limits, "COMMIT_S", 3_600)
    logs, broker = running[1].logs, running[0].appliance.broker
    commit_of, admitted = logs.commit, []

    def already_admitted(group, offsets):
        commit = commit_of(group, offsets)
        assert commit is not None
        admitted.append(broker.groups.commit_nowait(THE_APPLIANCE, commit, _NOBODY))
        return commit

    async with connected(running, client_id="hasty", **kept()) as client:
        await client.subscribe("hasty/1")
        await publish(running, "hasty/1", b"x")
        ack(client, await client.message())
        assert await client.pong()
        monkeypatch.setattr(logs, "commit", already_admitted)
        assert await client.subscribe("hasty/2") == 1
        assert admitted == [True]
        monkeypatch.setattr(logs, "commit", commit_of)
    await gone(running, "hasty")
    session = running[1].sessions.find(client_of(running, "hasty"))
    assert set(session.subscriptions) == {"hasty/1", "hasty/2"}

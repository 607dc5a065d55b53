"""Clients of before at a copy of the bucket that went back in time: its new topics and records have
the numbers of others, and are not taken for those."""

from __future__ import annotations

import contextlib
import shutil

import pytest
import pytest_asyncio

from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import list_all
from tests.support.appliance import running_appliance
from tests.support.kafka_client import connected, serving
from tests.support.receiver import receiving
from tests.support.subscribing import acked, produce, subscribe
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio


async def copied(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    for found in await list_all(store, ""):
        await copy.put(found.key, await store.get(found.key))
    return copy


@pytest_asyncio.fixture
async def histories(tmp_path):
    """Two that begin alike, with a topic `t`, and a record in `of-old`: each starts the appliance
    on another copy."""
    first = MemoryStore()
    async with serving(tmp_path / "first", store=first) as running:
        await running[0].client.put("/v1/topics/t", json={})
        await produce(running[0], "old", b"common")
    stores = {"lost": await copied(first), "kept": await copied(first)}

    @contextlib.asynccontextmanager
    async def start(name: str, **given: str):
        (tmp_path / name).mkdir()
        shutil.copy(tmp_path / "first/admin.key", tmp_path / name)
        given |= {"store": stores[name], "take_over": True}
        async with serving(tmp_path / name, **given) as running, connected(running) as client:
            client.seb = running[0]
            yield client

    return start


async def new_producer(client):
    return (await client.call("InitProducerId", transactional_id=None))["producer_id"]


async def test_what_a_kafka_producer_of_before_sends_is_no_repeat_of_what_another_one_sent(
    histories,
):
    """It would be acknowledged, and lost."""
    async with histories("lost") as client:
        old = await new_producer(client)
    async with histories("kept") as client:
        new = await new_producer(client)
        for producer, value in ((new, b"new"), (old, b"old")):
            part = await client.produce("t", made(Sent(value), producer=(producer, 0, 0)))
            assert part["error_code"] == 0
        records = (await client.seb.client.get("/v1/topics/t/records")).json()["records"]
    assert [one["value"] for one in records] == ["new", "old"]


async def test_the_kafka_id_of_a_topic_of_before_is_that_of_no_topic_made_since(histories):
    ids = {}
    for name in ("lost", "kept"):
        async with histories(name) as client:
            for topic in ("t", name):
                await client.seb.client.put(f"/v1/topics/{topic}", json={})
                (found,) = (await client.call("Metadata", topics=[{"name": topic}]))["topics"]
                ids[name, topic] = found["topic_id"]
            asked = [{"name": None, "topic_id": ids["lost", "lost"]}]
            (found,) = (await client.call("Metadata", topics=asked))["topics"]
    assert found["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    assert ids["lost", "t"] == ids["kept", "t"]


async def test_what_a_reader_of_a_stream_has_from_before_is_not_taken_for_what_came_since(
    histories,
):
    """It would keep records that the stream never had."""
    url, kind = "/v1/stream/t", {"content-type": "application/json"}
    tag, answers = "", []
    for name in ("lost", "kept"):
        async with histories(name) as client:
            await client.seb.client.put(url, headers=kind, content=b'["%b"]' % name.encode())
            told = {"if-none-match": tag}
            answers.append(await client.seb.client.get(url, headers=told))
            tag = answers[-1].headers["etag"]
            same = await client.seb.client.get(url, headers={"if-none-match": tag})
            assert same.status_code == 304
    assert [one.json() for one in answers] == [["lost"], ["kept"]]


async def test_a_record_that_came_since_is_sent_under_no_id_of_before(histories):
    """A receiver ignores an id that it has handled."""
    async with receiving() as receiver:
        for name in ("lost", "kept"):
            async with histories(name, push_networks="127.0.0.0/8") as client:
                await subscribe(client.seb, "mails", receiver.url)
                await produce(client.seb, "mails", name.encode())
                await acked(client.seb, "mails", 1)
        first, second = receiver.got
    assert (first.body, second.body) == (b"lost", b"kept")
    assert first.headers["seb-offset"] == second.headers["seb-offset"]
    assert first.headers["webhook-id"] != second.headers["webhook-id"]


async def test_the_journal_of_one_history_has_no_entry_of_another_one(histories):
    """So clients learn that the offsets that they keep are those of other records."""

    async def last_entry(client, topic):
        return (await client.seb.client.get(f"/v1/topics/{topic}")).json()["last_entry"]

    async def asked(client, entry):
        answer = await client.seb.client.get(f"/v1/entries/{entry}")
        return answer.status_code if answer.is_success else answer.json()["code"]

    entries = {}
    for name in ("lost", "kept"):
        async with histories(name) as client:
            for _ in range(3):
                await produce(client.seb, "new", name.encode())
            entries[name] = await last_entry(client, "of-new")
            entries["common", name] = await last_entry(client, "of-old")
            assert await asked(client, entries[name]) == 204
            assert await asked(client, entries["common", "lost"]) == 204
            for never in ("9999-" + "0" * 32, "1", "0-", "-1", "x", "9" * 5000):
                assert await asked(client, never) == "entry_not_found"
            if name == "kept":
                await produce(client.seb, "new", b"more")
                assert await asked(client, entries["lost"]) == "entry_not_found"
    assert entries["common", "lost"] == entries["common", "kept"]


async def test_a_standby_denies_no_entry_that_it_has_not_read_yet(tmp_path):
    """It would send a client back that has read at the writer, or before the standby started."""
    first, second = tmp_path / "one", tmp_path / "two"
    store, late = MemoryStore(), {"standby": True, "follow_poll": "1m"}
    async with running_appliance(first, store=store) as writer:
        second.mkdir()
        shutil.copy(first / "admin.key", second)
        async with running_appliance(second, store=store, **late) as standby:
            await produce(writer, "new", b"x")
            entry = (await writer.client.get("/v1/topics/of-new")).json()["last_entry"]
            answer = await standby.client.get(f"/v1/entries/{entry}")
            assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
            lost = await standby.client.get(f"/v1/entries/1-{'0' * 32}")
            assert lost.json()["code"] == "entry_not_found"

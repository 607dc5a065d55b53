"""Transactional ids outlive the appliance and its disk, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import shutil

import pytest
import pytest_asyncio

from seb_appliance.errors import OverloadedError
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.faulty_store import FaultyStore, before
from tests.support.kafka_client import api_key, connected, serving, values
from tests.support.kafka_producer import Producer, begun, committed

pytestmark = pytest.mark.asyncio


@pytest.fixture
def bucket():
    return MemoryStore()


@pytest_asyncio.fixture
async def started(tmp_path, bucket):
    """Starts the appliance on the same bucket with an empty disk: its admin key stays."""

    @contextlib.asynccontextmanager
    async def start(*, crashed=False):
        key = tmp_path / "admin.key"
        kept = key.read_bytes() if key.exists() else None
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        if kept is not None:
            key.write_bytes(kept)
        async with _serving(tmp_path, bucket, taken=kept is not None) as (running, client):
            if kept is None:
                await running[0].client.put("/v1/topics/t", json={})
                await running[0].client.put("/v1/topics/u", json={})
            client.running = running
            yield client, running[1]
            if crashed:
                running[1].transactions.stop = _nothing

    return start


@contextlib.asynccontextmanager
async def _serving(data, bucket, *, taken):
    given = {"store": bucket, "take_over": taken}
    async with serving(data, **given) as running, connected(running) as client:
        yield running, client


async def _nothing():
    """Of a process that is killed, nothing is noted."""


def held_by(client, producer):
    return Producer(client, producer.transactional_id, producer.identity)


async def test_a_producer_that_had_nothing_open_goes_on_after_a_restart(started):
    async with started() as (client, _):
        producer = await begun(client, "goes.on")
        await producer.add("t")
        await producer.send("t", 0, b"a")
        assert await producer.end(commits=True) == 0
    async with started() as (client, _):
        producer = held_by(client, producer)
        assert await producer.add("t") == [0]
        assert await producer.send("t", 1, b"b") == 0
        assert await producer.end(commits=True) == 0
        assert values(await client.fetch("t")) == [b"a", b"b"]


async def test_an_older_producer_stays_fenced_after_a_crash(started):
    async with started(crashed=True) as (client, _):
        old = await begun(client, "fences")
        new = await begun(client, "fences")
    async with started() as (client, _):
        old, new = held_by(client, old), held_by(client, new)
        assert await old.add("t") == [ErrorCode.PRODUCER_FENCED]
        assert await old.end(commits=False) == ErrorCode.PRODUCER_FENCED
        assert await new.end(commits=False) == 0
        assert await new.add("t") == [0]
        newest = await begun(client, "fences")
        assert newest.identity["producer_id"] == new.identity["producer_id"]
        assert newest.identity["producer_epoch"] == new.identity["producer_epoch"] + 1
        assert await new.add("t") == [ErrorCode.PRODUCER_FENCED]


@pytest.mark.parametrize("crashed", [True, False])
async def test_what_was_open_at_a_restart_cannot_be_committed_by_half(started, crashed):
    """Its producer is told to abort, by codes that all clients take for that."""
    async with started(crashed=crashed) as (client, _):
        producer = await begun(client, "half")
        await producer.add("t")
        assert await producer.send("t", 0, b"lost") == 0
    async with started() as (client, _):
        producer = held_by(client, producer)
        assert await producer.add("u") == [ErrorCode.UNKNOWN_PRODUCER_ID]
        assert await producer.send("t", 1, b"rest") == ErrorCode.INVALID_TXN_STATE
        asked = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
        said = await producer.call("AddOffsetsToTxn", group_id="g")
        assert said["error_code"] == ErrorCode.UNKNOWN_PRODUCER_ID
        said = await producer.call("TxnOffsetCommit", generation_id=-1, **asked)
        code = said["topics"][0]["partitions"][0]["error_code"]
        assert code == ErrorCode.ILLEGAL_GENERATION
        assert await producer.end(commits=True) == ErrorCode.UNKNOWN_PRODUCER_ID
        assert await producer.end(commits=False) == 0
        assert await producer.add("t") == [0]
        assert await producer.send("t", 2, b"again") == 0
        assert await producer.end(commits=True) == 0
        assert values(await client.fetch("t")) == [b"again"]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("3.4.1", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("3.8.0", ErrorCode.TRANSACTION_ABORTABLE),
        ("10.0", ErrorCode.TRANSACTION_ABORTABLE),
        ("unknown", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_a_java_client_is_not_told_what_flink_takes_for_committed(started, version, code):
    async with started(crashed=True) as (client, _):
        producer = await begun(client, "two.phases")
        await producer.add("t")
        assert await producer.send("t", 0, b"lost") == 0
    async with started() as (client, _):
        java = {"client_software_name": "apache-kafka-java", "client_software_version": version}
        await client.call("ApiVersions", 3, **java)
        producer = held_by(client, producer)
        assert await producer.end(commits=True) == code
        assert await producer.end(commits=False) == 0
        assert await producer.add("t") == [0]


async def test_after_a_crash_nobody_goes_on_before_it_has_aborted_or_begun_again(started):
    async with started(crashed=True) as (client, _):
        one, other = await begun(client, "one"), await begun(client, "other")
    async with started() as (client, _):
        one, other = held_by(client, one), held_by(client, other)
        assert await one.add("t") == [ErrorCode.UNKNOWN_PRODUCER_ID]
        assert await one.end(commits=False) == 0
        assert await one.add("t") == [0]
        assert await other.add("t") == [ErrorCode.UNKNOWN_PRODUCER_ID]
        again = await begun(client, "other", **other.identity)
        assert again.identity["producer_epoch"] == other.identity["producer_epoch"] + 1
        assert await again.add("t") == [0]
        assert await again.send("t", 0, b"x") == 0


async def test_a_stop_in_order_vouches_for_the_next_start_alone(started):
    async with started() as (client, _):
        producer = await begun(client, "vouches")
    async with started(crashed=True) as (client, _):
        assert await held_by(client, producer).add("t") == [0]
    async with started() as (client, _):
        assert await held_by(client, producer).add("t") == [ErrorCode.UNKNOWN_PRODUCER_ID]


async def test_init_producer_id_may_be_repeated_because_its_answer_was_lost(started):
    async with started(crashed=True) as (client, _):
        producer = await begun(client, "repeats")
        first = await begun(client, "repeats", **producer.identity)
        second = await begun(client, "repeats", **producer.identity)
        assert first.identity == second.identity
        assert first.identity["producer_epoch"] == producer.identity["producer_epoch"] + 1
    async with started() as (client, _):  # also if the appliance went before it could answer
        third = await begun(client, "repeats", **producer.identity)
        assert third.identity == first.identity
        await third.add("t")
        fenced = await client.call(
            "InitProducerId",
            transactional_id="repeats",
            transaction_timeout_ms=1_000,
            **producer.identity,
        )
        assert fenced["error_code"] == ErrorCode.PRODUCER_FENCED


async def test_what_is_refused_for_lack_of_room_is_as_it_was(started, monkeypatch):
    async with started() as (client, kafka):
        broker = kafka.broker
        producer = await begun(client, "no.room")
        await producer.add("t")
        await producer.send("t", 0, b"a")
        with monkeypatch.context() as full:
            full.setattr(broker._writes, "_refusal", lambda: OverloadedError("full"))
            full.setattr(broker._writes, "stopping", True)
            assert await producer.end(commits=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer = await client.call(
                "InitProducerId", transactional_id="no.room", transaction_timeout_ms=1_000
            )
            assert answer["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer = await client.call(
                "InitProducerId", transactional_id="never", transaction_timeout_ms=1_000
            )
            assert answer["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert broker.pending.used > 0
        assert await producer.send("t", 1, b"b") == 0
        assert await producer.end(commits=True) == 0
        assert values(await client.fetch("t")) == [b"a", b"b"]
        assert broker.pending.used == 0
        assert len(kafka.transactions._by_id) == kafka.transactions.room.used == 1


async def test_a_transaction_that_can_never_be_stored_is_to_be_aborted(started):
    async with started() as (client, kafka):
        producer = await begun(client, "never")
        await producer.add("t", 0)
        await producer.send("t", 0, b"a")
        assert await producer.commit_offset("g", "t", 99) == 0  # which is checked at the end
        assert await producer.end(commits=True) == ErrorCode.UNKNOWN_PRODUCER_ID
        assert await producer.add("t") == [ErrorCode.UNKNOWN_PRODUCER_ID]
        assert await producer.end(commits=False) == 0
        assert await producer.add("t") == [0]
        assert await producer.send("t", 1, b"b") == 0
        assert await producer.end(commits=True) == 0
        assert values(await client.fetch("t")) == [b"b"]
        assert kafka.broker.pending.used == 0


async def test_a_new_epoch_begins_each_topic_at_sequence_0(started):
    async with started() as (client, _):
        producer = await begun(client, "first")
        await producer.add("t")
        assert await producer.send("t", 1, b"b") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await producer.send("t", 0, b"a") == 0
        assert await producer.send("t", 1, b"b") == 0
        assert await producer.end(commits=True) == 0
        producer = await begun(client, "first", **producer.identity)
        await producer.add("t")
        assert await producer.send("t", 2, b"c") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await producer.send("t", 0, b"c") == 0
        assert await producer.end(commits=True) == 0
        assert values(await client.fetch("t")) == [b"a", b"b", b"c"]


async def test_ids_of_an_api_key_that_is_gone_are_forgotten(started):
    async with started() as (client, kafka):
        running = client.running
        key = await api_key(running, ("produce", "**"))
        async with connected(running, key["secret"]) as other:
            await begun(other, "gone")
        await begun(client, "stays")
        await running[0].client.delete(f"/v1/api-keys/{key['api_key_id']}")
    async with started() as (client, kafka):
        assert [name for _, name in kafka.transactions._by_id] == ["stays"]
        await begun(client, "another")
        names = [row.name for row in kafka.broker.documents.of_kind("kafka_transactional_id")]
        assert not any("gone" in name for name in names)
        assert await committed(client, "g", "t") == (0, -1)


async def test_a_stop_does_not_wait_for_ever_for_the_bucket(tmp_path, bucket):
    """What was not answered is not acknowledged."""
    store, there, goes_on = FaultyStore(bucket), asyncio.Event(), asyncio.Event()

    async def waits():
        there.set()
        await goes_on.wait()

    async with serving(tmp_path, store=store) as running, connected(running) as client:
        await running[0].client.put("/v1/topics/t", json={})
        producer = await begun(client, "waits")
        await producer.add("t")
        await producer.send("t", 0, b"a")
        store.on("create", "", before(waits))
        client.send("EndTxn", transactional_id="waits", committed=True, **producer.identity)
        await there.wait()
        running[1]._stop_s = 0.05
        async with asyncio.timeout(5):
            await running[1].stop()
        assert await client.is_closed()
        goes_on.set()


async def test_a_transaction_that_is_late_while_another_producer_cannot_begin_is_aborted(
    tmp_path, bucket
):
    store, there, goes_on = FaultyStore(bucket), asyncio.Event(), asyncio.Event()

    async def waits():
        there.set()
        await goes_on.wait()

    given = {"store": store, "ack_timeout": "300ms"}
    async with serving(tmp_path, **given) as running, connected(running) as client:
        await running[0].client.put("/v1/topics/t", json={})
        producer = await begun(client, "late", transaction_timeout_ms=100)
        await producer.add("t")
        await producer.send("t", 0, b"a")
        store.on("create", "", before(waits))
        async with connected(running) as other:
            other.send("InitProducerId", transactional_id="late", transaction_timeout_ms=1_000)
            await there.wait()
            busy = await producer.end(commits=True)
            assert busy == ErrorCode.CONCURRENT_TRANSACTIONS
            answer = await other.answer()
            assert answer["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        goes_on.set()
        assert running[1].transactions.open == 0
        assert await producer.end(commits=True) == ErrorCode.PRODUCER_FENCED
        assert running[0].appliance.broker.pending.held_by("") == 0

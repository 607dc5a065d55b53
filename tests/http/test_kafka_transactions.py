"""Transactions of Kafka producers, over real sockets."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from tests.support.kafka_client import NAMED, api_key, connected, serving, values
from tests.support.kafka_producer import Producer, begun, committed
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka")) as both:
        yield both


@pytest_asyncio.fixture(loop_scope="module")
async def topic(running, request):
    name = f"t{abs(hash(request.node.name)) % 10**12}"
    await running[0].client.put(f"/v1/topics/{name}", json={})
    return name


async def test_a_transaction_is_read_once_it_has_committed_and_as_a_whole(running, topic):
    await running[0].client.put(f"/v1/topics/{topic}.b", json={})
    async with connected(running) as client:
        producer = await begun(client, "whole")
        assert await producer.add(topic) == [0]
        assert await producer.add(f"{topic}.b") == [0]
        assert await producer.send(topic, 0, b"a", b"b") == 0
        assert await producer.send(f"{topic}.b", 0, b"c") == 0
        assert await producer.send(topic, 2, b"d") == 0
        assert values(await client.fetch(topic)) == []
        assert await producer.end(commits=True) == 0
        assert values(await client.fetch(topic)) == [b"a", b"b", b"d"]
        assert values(await client.fetch(f"{topic}.b")) == [b"c"]
        assert await producer.end(commits=True) == 0  # its answer was lost
        assert await producer.end(commits=False) == ErrorCode.INVALID_TXN_STATE


async def test_a_transaction_has_no_more_partitions_than_it_may_write_to(running, topic):
    most = limits.TRANSACTION_TOPICS_MAX
    for name in (f"{topic}.kafka-{index}" for index in range(1, most + 1)):
        await running[0].client.put(f"/v1/topics/{name}", json={})
    async with connected(running) as client:
        producer = await begun(client, "wide")
        assert set(await producer.add(topic, *range(most + 1))) == {ErrorCode.INVALID_REQUEST}
        assert await producer.add(topic, *range(most)) == [0] * most
        assert await producer.add(topic, 0) == [0]
        assert await producer.add(topic, most) == [ErrorCode.INVALID_REQUEST]
        assert await producer.send(topic, 0, b"x") == 0
        assert await producer.end(commits=True) == 0
        assert await producer.add(topic, most) == [0]
        assert await producer.end(commits=False) == 0


async def test_nothing_of_an_aborted_transaction_reaches_the_log(running, topic):
    async with connected(running) as client:
        for version in range(4):
            producer = await begun(client, "drops", version + 1)
            assert await producer.add(topic, version=version) == [0]
            assert await producer.send(topic, 0, b"never") == 0
            assert await producer.end(False, version) == 0
            assert await producer.end(False, version) == 0
        part = await client.fetch(topic)
        assert (values(part), part["high_watermark"]) == ([], 0)
        producer = await begun(client, "drops")
        await producer.add(topic)
        await producer.send(topic, 0, b"after")
        assert await producer.end(commits=True) == 0
        assert values(await client.fetch(topic)) == [b"after"]


async def test_an_older_producer_with_the_same_id_is_fenced(running, topic):
    async with connected(running) as first, connected(running) as second:
        old = await begun(first, "fences")
        await old.add(topic)
        await old.send(topic, 0, b"old")
        new = await begun(second, "fences")
        assert new.identity["producer_id"] == old.identity["producer_id"]
        assert new.identity["producer_epoch"] == old.identity["producer_epoch"] + 1
        assert await old.add(topic) == [ErrorCode.PRODUCER_FENCED]
        # Clients know only this code of Produce.
        assert await old.send(topic, 1, b"old") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end(commits=True) == ErrorCode.PRODUCER_FENCED
        assert await old.end(True, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        again = await first.call(
            "InitProducerId",
            transactional_id="fences",
            transaction_timeout_ms=1_000,
            **old.identity,
        )
        assert again["error_code"] == ErrorCode.PRODUCER_FENCED
        await new.add(topic)
        await new.send(topic, 0, b"new")
        assert await new.end(commits=True) == 0
        assert values(await second.fetch(topic)) == [b"new"]


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(running, topic):
    async with connected(running) as client:
        producer = await begun(client, "slow", transaction_timeout_ms=30)
        await producer.add(topic)
        await producer.send(topic, 0, b"slow")
        async with asyncio.timeout(5):
            while running[1].transactions.open:
                await asyncio.sleep(0)
        assert await producer.end(commits=True) == ErrorCode.PRODUCER_FENCED
        assert values(await client.fetch(topic)) == []
        for bad in (0, -1, kafka_limits.TRANSACTION_MS_MAX + 1):
            answer = await client.call(
                "InitProducerId", transactional_id="slow", transaction_timeout_ms=bad
            )
            assert answer["error_code"] == ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_offsets_are_committed_with_the_records_or_not_at_all(running, topic):
    async with connected(running) as client:
        await client.produce(topic, made(Sent(), Sent()))
        producer = await begun(client, "offsets")
        assert await producer.commit_offset("g.offsets", topic, 1) == 0
        assert await committed(client, "g.offsets", topic) == (0, -1)
        stable = await committed(client, "g.offsets", topic, require_stable=True)
        assert stable == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        await producer.end(commits=False)
        assert await committed(client, "g.offsets", topic, require_stable=True) == (0, -1)
        await producer.add(topic)
        await producer.send(topic, 0, b"out")
        assert await producer.commit_offset("g.offsets", topic, 2) == 0
        assert await producer.end(commits=True) == 0
        assert await committed(client, "g.offsets", topic) == (0, 2)
        assert len(values(await client.fetch(topic))) == 3
        for version in NAMED["TxnOffsetCommit"].versions:
            await producer.call("AddOffsetsToTxn", version, group_id="g.v")
            asked = [{"name": topic, "partitions": [{"partition_index": 0}]}]
            answer = await producer.call("TxnOffsetCommit", version, group_id="g.v", topics=asked)
            assert answer["topics"][0]["partitions"][0]["error_code"] == 0
        assert await producer.end(commits=True) == 0


async def test_what_is_not_in_a_transaction_is_refused(running, topic):
    async with connected(running) as client:
        producer = await begun(client, "not.in")
        assert await producer.send(topic, 0, b"x") == ErrorCode.INVALID_TXN_STATE
        assert await producer.end(commits=True) == ErrorCode.INVALID_TXN_STATE
        codes = await producer.add(topic, 0, 5)
        assert codes == [55, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        await producer.add(topic)
        other = Producer(client, "nobody", producer.identity)
        assert await other.end(commits=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        wrong = Producer(client, "not.in", producer.identity | {"producer_id": 1})
        assert await wrong.add(topic) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        await producer.end(commits=False)
        empty = await client.call("InitProducerId", transactional_id="")
        assert empty["error_code"] == ErrorCode.INVALID_REQUEST


async def test_a_repeated_or_missing_batch_of_a_transaction_is_noticed(running, topic):
    async with connected(running) as client:
        producer = await begun(client, "counts")
        await producer.add(topic)
        assert await producer.send(topic, 0, b"a") == 0
        assert await producer.send(topic, 0, b"a") == 0
        assert await producer.send(topic, 2, b"c") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await producer.send(topic, 1, b"b") == 0
        assert await producer.end(commits=True) == 0
        assert values(await client.fetch(topic)) == [b"a", b"b"]


async def test_a_transaction_holds_so_much_and_no_more(running, topic, monkeypatch):
    monkeypatch.setattr(limits, "HELD_BYTES_MAX", 20_000)
    async with connected(running) as client:
        producer = await begun(client, "large")
        await producer.add(topic)
        assert await producer.send(topic, 0, b"x" * 15_000) == 0
        assert await producer.send(topic, 1, b"x" * 15_000) == ErrorCode.MESSAGE_TOO_LARGE
        await producer.end(commits=False)
        for number in range(limits.HELD_GROUPS_MAX):
            assert await producer.commit_offset(f"g.held{number}", topic, 0) == 0
        assert await producer.commit_offset("g.held.more", topic, 0) != 0
        await producer.end(commits=False)
    assert running[0].appliance.broker.pending.used == 0


async def test_transactional_ids_are_bounded_and_the_longest_unused_is_forgotten(
    running, topic, monkeypatch
):
    room = running[1].transactions.room
    key = await api_key(running, ("produce", "**"))
    async with connected(running, key["secret"]) as client:
        monkeypatch.setattr(room, "limit", room.used + 4)  # half of the rest is for others
        oldest = await begun(client, "bound.0")
        newer = [await begun(client, f"bound.{number}") for number in (1, 2)]
        assert room.held_by(key["api_key_id"]) == 2
        assert await oldest.add(topic) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert await newer[0].add(topic) == [0]
        assert await newer[1].add(topic) == [0]
        full = await client.call(
            "InitProducerId", transactional_id="bound.3", transaction_timeout_ms=1_000
        )
        assert full["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await newer[0].end(commits=False)
        await newer[1].end(commits=False)

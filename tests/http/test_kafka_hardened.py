"""What one client of the Kafka port could do to others, and what a slow bucket could do to it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.wire.framing import Framer
from tests.http.test_kafka_transactions import begun, committed
from tests.support.kafka_client import connected, framed, of, raw, request, serving, values
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka")) as both:
        yield both


@contextlib.asynccontextmanager
async def held_back(seb):
    """No journal entry is stored meanwhile."""
    create, may = seb.appliance.store.create, asyncio.Event()

    async def late(key: str, body: bytes) -> None:
        await may.wait()
        await create(key, body)

    seb.appliance.store.create = late
    try:
        yield
    finally:
        may.set()
        seb.appliance.store.create = create


async def test_a_commit_whose_outcome_is_unknown_is_waited_for(tmp_path):
    """Else its program would begin anew at the old offsets, and everything would be there twice."""
    async with (
        serving(tmp_path, ack_timeout="1s") as running,
        connected(running) as client,
        connected(running) as other,
        connected(running) as reader,
    ):
        await running[0].client.put("/v1/topics/t", json={})
        await client.produce("t", made(Sent(b"input")))
        producer = await begun(client, "slow")
        await producer.add("t")
        await producer.send("t", 0, b"output")
        assert await producer.commit_offset("g", "t", 1) == 0
        async with held_back(running[0]):
            ending = asyncio.create_task(producer.end(commits=True))
            for _ in range(2):  # the second one is told after all that others could wait
                told = await running[0].client.post("/v1/topics/other/records", content=b"x")
                assert told.json()["code"] == "outcome_unknown"
            again = await other.call(
                "InitProducerId", transactional_id="slow", transaction_timeout_ms=1_000
            )
            assert again["error_code"] == ErrorCode.CONCURRENT_TRANSACTIONS
            unstable = await committed(reader, "g", "t", require_stable=True)
            assert ErrorCode.UNSTABLE_OFFSET_COMMIT in unstable
        assert await ending == 0
        assert values(await reader.fetch("t")) == [b"input", b"output"]


async def test_names_that_are_too_long_are_refused_and_not_remembered(running):
    long = "n" * (limits.NAME_LENGTH_MAX + 1)
    async with connected(running) as client:
        answer = await client.call("JoinGroup", group_id=long, session_timeout_ms=6_000)
        assert answer["error_code"] == ErrorCode.INVALID_GROUP_ID
        answer = await client.call("Metadata", topics=[{"name": long}])
        assert answer["topics"][0]["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        name = "t" * (kafka_limits.TRANSACTIONAL_ID_CHARACTERS_MAX + 1)
        answer = await client.call("InitProducerId", transactional_id=name)
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    assert running[1].coordinator.counts.groups == 0


async def test_nothing_is_reserved_before_an_api_key(running):
    used = running[0].appliance.broker.pending.used
    async with raw(running) as client:
        client.writer.write(framed(bytes(kafka_limits.FIRST_REQUEST_BYTES_MAX))[:-1])
        client.send("ApiVersions", 3)
    async with connected(running) as other:
        assert (await other.call("DescribeCluster"))["error_code"] == 0
        assert running[0].appliance.broker.pending.used == used


async def test_a_large_request_does_not_stay_in_memory():
    framer = Framer()
    framer.is_trusted = True
    framer.feed(request("Produce", 8, transactional_id="x" * 30_000, topic_data=[]))
    assert framer.next() is not None
    assert len(framer._buffer) == 0


async def test_compressed_records_take_the_memory_that_they_have(running):
    await running[0].client.put("/v1/topics/packed", json={})
    pending = running[0].appliance.broker.pending
    async with connected(running) as client, held_back(running[0]):
        before = pending.used
        client.send("Produce", 8, **to_packed(made(Sent(bytes(200_000)), codec=1)))
        while pending.used == before:
            await asyncio.sleep(0)
        assert pending.used - before >= 200_000


def to_packed(records):
    part = {"index": 0, "records": records}
    topics = [{"name": "packed", "partition_data": [part]}]
    return {"acks": -1, "timeout_ms": 10_000, "topic_data": topics}


async def test_fetches_of_many_partitions_wait_while_there_is_memory(running, monkeypatch):
    """One for which there is none is answered at once."""
    waiting, asked = running[1].waiting, of(*[("orders", 0, 0)] * 1_000, max_wait_ms=60_000)
    monkeypatch.setattr(waiting, "limit", 1_500_000)
    await running[0].client.put("/v1/topics/orders", json={})
    async with connected(running) as first, connected(running) as second:
        first.send("Fetch", 12, **asked)
        async with asyncio.timeout(5):
            while not waiting.used:
                await asyncio.sleep(0)
        held = waiting.used
        assert held > 500_000
        parts = (await second.call("Fetch", 12, **asked))["responses"]
        assert {one["partitions"][0]["error_code"] for one in parts} == {0}
        assert waiting.used == held
    async with asyncio.timeout(5):
        while waiting.used:
            await asyncio.sleep(0)


async def test_a_fetch_waits_no_longer_than_a_minute(running, monkeypatch):
    monkeypatch.setattr(kafka_limits, "FETCH_WAIT_MS_MAX", 10)
    await running[0].client.put("/v1/topics/quiet", json={})
    async with connected(running) as client:
        answer = await client.call("Fetch", 12, **of(("quiet", 0, 0), max_wait_ms=2**31 - 1))
        assert values(answer["responses"][0]["partitions"][0]) == []


async def test_a_fetch_does_not_outlive_its_api_key(running):
    seb = running[0]
    await seb.client.put("/v1/topics/secret", json={})
    grants = [{"operation": "consume", "topics": "secret"}]
    made_key = (await seb.client.post("/v1/api-keys", json={"name": "r", "grants": grants})).json()
    async with raw(running) as client, connected(running) as writer:
        assert (await client.authenticate(made_key["secret"]))["error_code"] == 0
        client.send("Fetch", 12, **of(("secret", 0, 0), max_wait_ms=20_000))
        while not seb.appliance.broker.waiting_readers:
            await asyncio.sleep(0)
        await seb.client.delete(f"/v1/api-keys/{made_key['api_key_id']}")
        await writer.produce("secret", made(Sent(b"later")))
        assert await client.is_closed()


async def test_a_lease_is_not_deleted_by_whom_no_grant_lets(running):
    seb = running[0]
    lease = {"holder": "a", "ttl_ms": 60_000}
    answer = await seb.client.post("/v1/groups/leased/lease", json=lease)
    assert answer.status_code < 300, answer.text
    grants = [{"operation": "produce", "topics": "anything"}]
    other = (await seb.client.post("/v1/api-keys", json={"name": "o", "grants": grants})).json()
    async with raw(running) as client:
        await client.authenticate(other["secret"])
        answer = await client.call("OffsetDelete", group_id="leased", topics=[])
        assert answer["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
        answer = await client.call("DeleteGroups", groups_names=["leased"])
        assert answer["results"][0]["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
    view = (await seb.client.get("/v1/groups/leased")).json()
    assert view["lease"]["holder"] == "a"

"""Requests of Kafka clients that are sent again and again, over real sockets."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
import pytest_asyncio

from seb_appliance.protocols.kafka import limits as kafka_limits
from tests.support.kafka_client import connected, of, serving, to, values
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERSIONS = range(4, 13)  # those that name topics


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka"), linger="1ms") as both:
        yield both


@pytest_asyncio.fixture(loop_scope="module")
async def topic(running, request):
    """A new one for each test."""
    name = f"t{abs(hash(request.node.name)) % 10**12}"
    answer = await running[0].client.put(f"/v1/topics/{name}", json={})
    assert answer.status_code < 300, answer.text
    return name


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_fetch_that_is_repeated_at_the_end_gets_the_same_answer(running, topic, version):
    async with connected(running) as client:
        request = of((topic, 0, 0), max_wait_ms=5)
        first, *others = [await client.call("Fetch", version, **request) for _ in range(5)]
    assert first["responses"][0]["partitions"][0]["high_watermark"] == 0
    assert others == [first] * 4


async def test_a_record_that_comes_between_two_repeated_fetches_is_in_the_second(running, topic):
    async with connected(running) as client:
        for _ in range(4):
            part = await client.fetch(topic, max_wait_ms=5)
            assert (values(part), part["high_watermark"]) == ([], 0)
        await client.produce(topic, made(Sent(b"between")))
        part = await client.fetch(topic, max_wait_ms=5)
        assert (values(part), part["high_watermark"]) == ([b"between"], 1)


async def test_a_record_wakes_a_fetch_that_was_repeated(running, topic):
    async with connected(running) as reader, connected(running) as writer:
        served = list(running[1]._all)[-2]
        request = of((topic, 0, 0), max_wait_ms=1_000)
        for _ in range(2):
            reader.send("Fetch", 12, **request)
            await until(lambda: served._holding is not None)
            served._holding.interrupt()
            await reader.answer()
        reader.send("Fetch", 12, **request)
        await until(lambda: served._holding is not None)
        await writer.produce(topic, made(Sent(b"woken")))
        part = (await reader.answer())["responses"][0]["partitions"][0]
    assert values(part) == [b"woken"]


async def test_a_topic_that_goes_between_two_repeated_fetches_is_gone_in_the_second(running, topic):
    async with connected(running) as client:
        for _ in range(3):
            await client.fetch(topic, max_wait_ms=5)
        await running[0].client.delete(f"/v1/topics/{topic}")
        assert (await client.fetch(topic, max_wait_ms=5))["error_code"] == 3


async def test_a_consumer_that_repeats_its_fetch_takes_one_place_and_gives_it_back(running, topic):
    broker = running[1].broker
    async with connected(running) as client:
        for _ in range(4):
            await client.fetch(topic, max_wait_ms=5)
        assert broker.waiting_readers == 1
        await client.fetch(topic, max_wait_ms=6)
        assert broker.waiting_readers == 0
        for _ in range(3):
            await client.fetch(topic, max_wait_ms=5)
        assert broker.waiting_readers == 1
    await until(lambda: broker.waiting_readers == 0)


@pytest.mark.parametrize("version", [3, 8, 9, 11])
async def test_produce_that_is_repeated_with_other_records_is_answered_alike(
    running, topic, version
):
    sizes = [1, 0, 50, 51, 52, 200, 20_000, 70_000]
    async with connected(running) as client:
        parts = [
            await client.produce(topic, made(Sent(b"v" * size)), version=version) for size in sizes
        ]
        damaged = await client.produce(topic, b"\0" * 80, version=version)
        null = await client.produce(topic, None, version=version)
        none = await client.produce(topic, b"", version=version)
        read = values(await client.fetch(topic))
    for offset, part in enumerate(parts):
        assert part == parts[0] | {"base_offset": offset}
    assert [len(value) for value in read] == sizes
    assert (damaged["error_code"], null["error_code"], none["error_code"]) == (43, 3, 87)


# --- many partitions ---


def many(topic, count, **given):
    """A Fetch of the one partition, named so many times."""
    body = of((topic, 0, 0), **given)
    body["topics"][0]["partitions"] *= count
    return body


@pytest.mark.parametrize("count", [65, 400, 2_000])
async def test_a_fetch_of_many_partitions_waits_and_is_repeated(running, topic, count):
    broker = running[1].broker
    async with connected(running) as client:
        for _ in range(4):
            answer = await client.call("Fetch", 12, **many(topic, count, max_wait_ms=20))
            parts = answer["responses"][0]["partitions"]
            assert [(part["error_code"], part["high_watermark"]) for part in parts] == [
                (0, 0)
            ] * count
        await client.produce(topic, made(Sent(b"v")))
        answer = await client.call("Fetch", 12, **many(topic, count, max_wait_ms=20_000))
        parts = answer["responses"][0]["partitions"]
        assert values(parts[0]) == [b"v"]
        assert len(parts) == count
    await until(lambda: broker.waiting_readers == broker.reading.used == 0)


async def test_produce_for_many_partitions_is_answered_for_each_and_in_order(running, topic):
    body = to(topic, made(Sent(b"v")))
    parts = [{"index": index, "records": made(Sent(b"v"))} for index in (0, *range(500, 2_500), 0)]
    async with connected(running) as client:
        client.send(
            "Produce", 9, **body | {"topic_data": [{"name": topic, "partition_data": parts}]}
        )
        client.send("Produce", 9, **body)
        answer, after = await client.answer(), await client.answer()
    (only,) = answer["responses"]
    codes = [part["error_code"] for part in only["partition_responses"]]
    offsets = [part["base_offset"] for part in only["partition_responses"]]
    assert codes == [0, *[3] * 2_000, 0]
    assert offsets == [0, *[-1] * 2_000, 1]
    assert after["responses"][0]["partition_responses"][0]["base_offset"] == 2


async def test_a_record_wakes_a_fetch_of_many_partitions(running, topic):
    async with connected(running) as reader, connected(running) as writer:
        reader.send("Fetch", 12, **many(topic, 2_000, max_wait_ms=20_000))
        await until(lambda: running[1].broker.waiting_readers)
        await writer.produce(topic, made(Sent(b"woken")))
        parts = (await reader.answer())["responses"][0]["partitions"]
    assert values(parts[0]) == values(parts[-1]) == [b"woken"]


def _wait_for_so_many(broker, wanted):
    return broker.waiting_readers >= wanted


async def test_a_client_that_goes_while_many_partitions_wait_leaves_nothing(running, topic):
    broker = running[1].broker
    for wanted in (1, 500, 2_000):
        async with connected(running) as client:
            client.send("Fetch", 12, **many(topic, 2_000, max_wait_ms=20_000))
            await until(partial(_wait_for_so_many, broker, wanted))
            client.writer.transport.abort()
        await until(lambda: broker.waiting_readers == broker.reading.used == 0)


async def test_an_idle_connection_keeps_nothing_of_its_requests(running, topic, monkeypatch):
    async with connected(running) as client:
        served = list(running[1]._all)[-1]
        for index in range(3):
            await client.produce(topic, made(Sent(b"x")), index=index)
        await client.fetch(topic, max_wait_ms=5)
        served._check()
        assert len(served._reader._repeats._beginnings) == 3
        monkeypatch.setattr(kafka_limits, "REPEATS_KEPT_S", 0)
        served._check()
        assert not served._reader._repeats._beginnings
        assert not served._reader._repeats._fetch
        await client.produce(topic, made(Sent(b"y")))
        assert values(await client.fetch(topic, max_wait_ms=5)) == [b"x", b"y"]

"""Requests of Kafka clients that are sent again and again, over real sockets."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from tests.support.kafka_client import connected, of, serving, values
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

"""What applications do with Kafka, by the clients that they use."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import KafkaBroker, kafka_broker
from tests.kafka.clients import CLIENTS, WITHIN_S, Client, Driver, driving

pytestmark = pytest.mark.slow
every_client = pytest.mark.parametrize("client", [client.param() for client in CLIENTS])
TRANSACTIONAL = [client.param() for client in CLIENTS if client.transactions]


def produced(first: int, count: int, **more: Any) -> dict[str, Any]:
    """Options of the role `produce`."""
    usual = {"codec": "none", "idempotent": True, "pause_ms": 0, "sender": "somebody"}
    return {"first": first, "count": count, **usual, **more}


async def produce(client: Client, broker: KafkaBroker, topic: str, **options: Any) -> None:
    """All of it, acknowledged."""
    given = {**broker.options, "topic": topic, **produced(**options)}
    async with driving(client, "produce", broker.folder, **given) as producing:
        await producing.done()
    wanted = range(options["first"], options["first"] + options["count"])
    assert sorted(producing.all("acked")) == list(wanted), producing.said


def assert_in_order(parts: Iterable[list[int]]) -> None:
    """By key: the producer chose the partition by it."""
    for part in parts:
        for key in range(8):
            of_key = [n for n in part if n % 8 == key]
            assert of_key == sorted(of_key)


@every_client
async def test_what_is_produced_with_each_codec_is_consumed(client: Client, tmp_path: Path):
    async with kafka_broker(tmp_path) as broker:
        await broker.create("codecs", 3)
        for i, codec in enumerate(client.codecs):
            await produce(
                client, broker, "codecs", first=40 * i, count=40, codec=codec, sender=client.name
            )
        count = 40 * len(client.codecs)
        given = {**broker.options, "topic": "codecs", "count": count}
        async with driving(client, "consume", tmp_path, **given) as reading:
            await reading.done()
        by_http = await broker.values("codecs", 3)
    parts: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for topic, part, offset, key, value, sender in reading.all("record"):
        assert (topic, offset, key) == ("codecs", len(parts[part]), f"k{int(value) % 8}")
        assert sender == client.name
        parts[part].append(int(value))
    assert sorted(chain.from_iterable(parts.values())) == list(range(count))
    assert list(parts.values()) == by_http
    assert_in_order(by_http)


@every_client
async def test_a_group_of_three_goes_on_when_a_member_dies(client: Client, tmp_path: Path):
    async with kafka_broker(tmp_path) as broker:
        await broker.create("work", 6)
        given = {**broker.options, "topic": "work", "group": "workers"}

        def member():
            return driving(client, "member", tmp_path, **given)

        async with member() as one, member() as two, member() as three:
            everybody = [one, two, three]
            await shared_out(everybody, 6)
            await produce(client, broker, "work", first=0, count=300)
            await seen(everybody, 300)
            await three.kill()
            await shared_out([one, two], 6)
            await produce(client, broker, "work", first=300, count=300)
            await seen(everybody, 600)
            await one.stop()
            await two.stop()
        async with member() as late:
            await shared_out([late], 6)
            await produce(client, broker, "work", first=600, count=10)
            await seen([late], 10)
            repeated = [n for n in numbers(late) if n < 600]
            assert repeated == [], "the group had committed these"


def numbers(driver: Driver) -> list[int]:
    return [int(record[4]) for record in driver.all("record")]


async def shared_out(members: list[Driver], partitions: int) -> None:
    """Wait until the members have all partitions, each once, and everybody has some."""

    def held() -> bool:
        last = [(member.all("assigned") or [[]])[-1] for member in members]
        parts = sorted(part for some in last for _, part in some)
        return all(last) and parts == list(range(partitions))

    await together(members, held)


async def seen(members: list[Driver], count: int) -> None:
    """Wait until the members have got so many different records."""
    await together(members, lambda: len({n for one in members for n in numbers(one)}) >= count)


async def together(members: list[Driver], reached: Any) -> None:
    """Wait for what all of them together have told."""
    try:
        async with asyncio.timeout(WITHIN_S):
            while not reached():
                for member in members:
                    assert not member.ended or member.process.returncode == -9, member.said
                    member.told.clear()
                waiting = [asyncio.create_task(one.told.wait()) for one in members if not one.ended]
                _, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in rest:
                    task.cancel()
    except TimeoutError:
        told = [f"{len(numbers(one))} records, {one.said}" for one in members]
        raise AssertionError(f"not after {WITHIN_S} s: {told}") from None


@every_client
async def test_an_idempotent_producer_stores_each_record_once_over_kill_9(
    client: Client, tmp_path: Path
):
    async with kafka_broker(tmp_path) as broker:
        await broker.create("once", 3)
        options = produced(first=0, count=3000, pause_ms=1)
        given = {**broker.options, "topic": "once", **options}
        async with driving(client, "produce", tmp_path, **given) as producing:
            for part in (1, 2):
                await broker.holds("once", 3, 900 * part)
                await broker.kill_and_start_again()
            await producing.done()
        parts = await broker.values("once", 3)
    assert producing.all("failed") == [], producing.said
    assert sorted(producing.all("acked")) == list(range(3000))
    repeated = {n: times for n, times in Counter(chain(*parts)).items() if times > 1}
    assert (repeated, sorted(chain(*parts))) == ({}, list(range(3000)))
    assert_in_order(parts)


@pytest.mark.parametrize("client", TRANSACTIONAL)
async def test_transactions_transform_each_record_once_over_kill_9_of_either_side(
    client: Client, tmp_path: Path
):
    async with kafka_broker(tmp_path) as broker:
        await broker.create("input", 2)
        await broker.create("output", 2)
        await produce(client, broker, "input", first=0, count=1000)
        names = {"topic": "input", "output": "output", "group": "g", "transactional_id": "t"}
        given = {**broker.options, **names}
        async with driving(client, "transform", tmp_path, **given) as first:
            await broker.holds("output", 2, 200)
            await first.kill()
        async with driving(client, "transform", tmp_path, **given) as second:
            await broker.holds("output", 2, 500)
            await broker.kill_and_start_again()
            await broker.holds("output", 2, 1000)
            await second.stop()
        written = await broker.values("output", 2)
        reading_given = {**broker.options, "topic": "output", "count": 1000}
        async with driving(client, "consume", tmp_path, **reading_given) as reading:
            await reading.done()
    assert sorted(chain(*written)) == list(range(1000)), second.said
    assert sorted(numbers(reading)) == list(range(1000))
    assert_in_order(written)

"""Transactions of the client: records of several topics, and a group's commit, whole or not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from seb_appliance.client import (
    ApplianceError,
    AsyncConsumer,
    AsyncProducer,
    BadRecordError,
    ClientError,
    ClosedError,
    Consumer,
    Delivery,
    LeaseLostError,
    Producer,
    Transaction,
)
from seb_appliance.client.records import RecordBatch
from tests.client.test_consuming import admin, committed, fill
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.unreliable import unreliable


def consumer(running: RunningAppliance, url: str = "", **more: object) -> AsyncConsumer:
    options = {"group": "g", "follow": False, "max_bytes": 1, **more}
    return AsyncConsumer(url or running.base_url, running.admin_key, "in", **options)


async def texts(running: RunningAppliance, topic: str) -> list[str]:
    async with AsyncConsumer(running.base_url, running.admin_key, topic, follow=False) as reading:
        return [record.text() async for record in reading]


def doubled(batch: RecordBatch, transaction: Transaction) -> None:
    for record in batch:
        transaction.send("out", {"twice": 2 * int(record.text())}, key=record.key)
        transaction.send("seen", record.value, headers={"at": str(record.offset)})


async def work(reading: AsyncConsumer) -> None:
    async for batch in reading.batches():
        async with reading.transaction() as transaction:
            doubled(batch, transaction)


TWICE = [json.dumps({"twice": 2 * i}, separators=(",", ":")) for i in range(30)]


@pytest.mark.parametrize("fate", ["pass", "lose_request", "lose_answer"])
async def test_each_input_is_in_the_output_once_whatever_gets_lost(
    tmp_path: Path, fate: str
) -> None:
    left = ["pass", fate, fate, "pass", fate]
    async with (
        running_appliance(tmp_path) as running,
        admin(running) as look,
        unreliable(running.port, lambda: left.pop(0) if left else "pass", b"POST") as way,
    ):
        for start in range(0, 30, 10):
            await fill(running, "in", range(start, start + 10), key="k")
        async with consumer(running, way.url) as reading:
            await work(reading)
        assert await texts(running, "out") == TWICE
        assert await texts(running, "seen") == [str(i) for i in range(30)]
        assert await committed(look, "g") == {"in": 30}


async def test_records_learn_their_offsets_and_hold_all_that_was_given(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await fill(running, "out", range(5))
        async with AsyncProducer(running.base_url, running.admin_key) as producer:
            async with producer.transaction() as transaction:
                sent = [
                    transaction.send("out", b"\xff", key=b"\xfe", headers={"h": b"\xfd"}),
                    transaction.send("out", None, key="gone"),
                    transaction.send("other", ""),
                ]
                assert not sent[0].done()
            assert [await delivery for delivery in sent] == [5, 6, 0]
            with pytest.raises(ClosedError):
                transaction.send("out", "late")
        async with AsyncConsumer(
            running.base_url, running.admin_key, "out", offset=5, follow=False
        ) as reading:
            first, second = [record async for record in reading]
    assert (first.value, first.key, first.headers) == (b"\xff", b"\xfe", {"h": b"\xfd"})
    assert (second.value, second.key) == (None, b"gone")


async def test_a_body_that_fails_stores_nothing_and_its_batch_comes_again(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "in", range(10), key="k")
        async with consumer(running) as reading:
            batch = await reading.next_batch()
            sent = []
            with pytest.raises(ZeroDivisionError):
                await fail(reading, sent)
            with pytest.raises(ClosedError):
                await sent[0]
            with pytest.raises(ClosedError, match="create a new consumer"):
                await reading.next_batch()
            with pytest.raises(ClosedError):
                reading.open_transaction()
        assert await committed(look, "g") == {}
        async with consumer(running) as reading:
            assert await reading.next_batch() == batch
            await work_on(reading, batch)
            await work(reading)
        assert await texts(running, "out") == TWICE[:10]


async def fail(reading: AsyncConsumer, sent: list[Delivery]) -> None:
    async with reading.transaction() as transaction:
        sent.append(transaction.send("out", "x"))
        raise ZeroDivisionError


async def work_on(reading: AsyncConsumer, batch: RecordBatch) -> None:
    async with reading.transaction() as transaction:
        doubled(batch, transaction)


async def test_what_one_topic_refuses_is_stored_in_none(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await look.create_topic("small", max_record_bytes=1000)
        await fill(running, "in", range(3))
        sent = []
        async with consumer(running) as reading:
            await reading.next_batch()
            with pytest.raises(ApplianceError, match="record_too_large"):
                await send_both(reading, sent)
            for delivery in sent:
                with pytest.raises(ApplianceError, match="record_too_large"):
                    await delivery
        assert await committed(look, "g") == {}
        assert [topic["topic"] for topic in await look.topics()] == ["in", "small"]


async def send_both(reading: AsyncConsumer, sent: list[Delivery]) -> None:
    async with reading.transaction() as transaction:
        sent.append(transaction.send("out", "x"))
        sent.append(transaction.send("small", "x" * 1001))


async def test_of_two_workers_of_a_group_one_does_a_step(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "in", range(10), key="k")
        async with consumer(running) as slow, consumer(running) as fast:
            batch = await slow.next_batch()
            await work(fast)
            with pytest.raises(ApplianceError) as failure:
                await work_on(slow, batch)
        assert (failure.value.code, failure.value.side_effects) == ("offset_conflict", "none")
        assert await texts(running, "out") == TWICE[:10]
        assert await committed(look, "g") == {"in": 10}


async def test_a_commit_in_doubt_before_it_is_no_conflict_with_oneself(tmp_path: Path) -> None:
    committing = False
    async with (
        running_appliance(tmp_path) as running,
        admin(running) as look,
        unreliable(running.port, lambda: "lose_answer" if committing else "pass", b"PUT") as way,
    ):
        await fill(running, "in", range(5), key="k")
        await fill(running, "in", range(5, 10), key="k")
        async with consumer(running, way.url, patience_s=0) as reading:
            behind = (await reading.next_batch()).next_offset
            committing = True
            with pytest.raises(ApplianceError, match="no_answer"):
                await reading.commit()
            await work(reading)
        assert await texts(running, "out") == TWICE[behind:10]
        assert await committed(look, "g") == {"in": 10}


async def test_a_consumer_without_its_lease_stores_nothing(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await fill(running, "in", range(3), key="k")
        async with consumer(running, lease="a") as reading:
            batch = await reading.next_batch()
            await running.client.delete(
                "/v1/groups/g/lease", params={"generation": generation(reading)}
            )
            with pytest.raises(LeaseLostError):
                await work_on(reading, batch)
        async with consumer(running, lease="b") as reading:
            await work(reading)
        assert await texts(running, "out") == TWICE[:3]


def generation(reading: AsyncConsumer) -> int:
    assert reading._lease is not None
    return reading._lease.generation


async def test_a_transaction_has_its_limits(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        async with AsyncProducer(running.base_url, running.admin_key) as producer:
            async with producer.transaction() as transaction:
                for _ in range(10_000):
                    transaction.send("many", "x")
                with pytest.raises(BadRecordError, match="at most 10,000"):
                    transaction.send("many", "x")
            async with producer.transaction() as transaction:
                for i in range(100):
                    transaction.send(f"t{i}", "x")
                with pytest.raises(BadRecordError, match="100 topics"):
                    transaction.send("t100", "x")
            async with producer.transaction() as transaction:
                for _ in range(11):
                    large = transaction.send("large", b"x" * (1024 * 1024 - 100))
                with pytest.raises(BadRecordError, match="11 MiB"):
                    transaction.send("large", b"x" * 1000)
                with pytest.raises(BadRecordError, match="headers"):
                    transaction.send("large", "x", headers={"a": 1})
            assert await large == 10
            async with producer.transaction():
                pass
        with pytest.raises(ClosedError):
            producer.open_transaction()
        assert len(await texts(running, "many")) == 10_000
        async with AsyncConsumer(running.base_url, running.admin_key, "many") as reading:
            with pytest.raises(ClientError, match="without a group"):
                reading.open_transaction()


async def test_programs_with_threads_have_transactions_too(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "in", range(10), key="k")
        await asyncio.to_thread(in_a_thread, running.base_url, running.admin_key)
        assert await texts(running, "out") == [*TWICE[:10], "one more"]
        assert await committed(look, "g") == {"in": 10}


def fail_in_a_thread(reading: Consumer) -> None:
    with reading.transaction() as transaction:
        transaction.send("out", "never")
        raise ZeroDivisionError


def in_a_thread(url: str, key: str) -> None:
    options = {"group": "g", "follow": False}
    with Consumer(url, key, "in", **options) as reading:
        reading.next_batch()
        with pytest.raises(ZeroDivisionError):
            fail_in_a_thread(reading)
        with pytest.raises(ClosedError):
            reading.next_batch()
    with Consumer(url, key, "in", **options) as reading:
        for batch in reading.batches():
            with reading.transaction() as transaction:
                doubled(batch, transaction)
    with Producer(url, key) as producer, producer.transaction() as transaction:
        delivery = transaction.send("out", "one more")
    assert delivery.result(5) == 10

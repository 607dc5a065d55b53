"""Drives aiokafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from tests.kafka.drivers.driving import Options, key_of, run, tell, text, told_to_stop


def connection(options: Options) -> dict[str, Any]:
    return {
        "bootstrap_servers": options["brokers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "anybody",
        "sasl_plain_password": options["password"],
    }


def consumer(options: Options, **more: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        **connection(options),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        **more,
    )


async def produce(options: Options) -> None:
    producer = AIOKafkaProducer(
        **connection(options),
        acks="all",
        enable_idempotence=options["idempotent"],
        compression_type=None if options["codec"] == "none" else options["codec"],
        request_timeout_ms=120_000,
    )
    await producer.start()

    async def acknowledged(n: int, sent: asyncio.Future[Any]) -> None:
        try:
            await sent
            tell(acked=n)
        except KafkaError as error:
            tell(failed=n, error=repr(error))

    headers = [("from", options["sender"].encode())]
    waiting = []
    for n in range(options["first"], options["first"] + options["count"]):
        sent = await producer.send(
            options["topic"], str(n).encode(), key_of(n).encode(), headers=headers
        )
        waiting.append(asyncio.create_task(acknowledged(n, sent)))
        await asyncio.sleep(options["pause_ms"] / 1000)
    await asyncio.gather(*waiting)
    await producer.stop()


def tell_record(record: Any) -> None:
    where = [record.topic, record.partition, record.offset]
    sender = dict(record.headers).get("from")
    tell(record=[*where, text(record.key), text(record.value), text(sender)])


async def consume(options: Options) -> None:
    reading = consumer(options)
    await reading.start()
    await reading._client._wait_on_metadata(options["topic"])
    parts = reading.partitions_for_topic(options["topic"])
    reading.assign([TopicPartition(options["topic"], p) for p in parts])
    for _ in range(options["count"]):
        tell_record(await reading.getone())
    await reading.stop()


class Assigned(ConsumerRebalanceListener):
    async def on_partitions_assigned(self, assigned: Any) -> None:
        tell(assigned=[[part.topic, part.partition] for part in assigned], ready=True)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        pass


async def member(options: Options) -> None:
    stopping = told_to_stop()
    reading = consumer(
        options, group_id=options["group"], group_instance_id=options.get("instance")
    )
    reading.subscribe([options["topic"]], listener=Assigned())
    await reading.start()
    while not stopping.is_set():
        batches = await reading.getmany(timeout_ms=100)
        for records in batches.values():
            for record in records:
                tell_record(record)
        try:
            if batches:
                await reading.commit()
        except KafkaError as error:
            tell(error=repr(error))
    await reading.stop()


async def transform(options: Options) -> None:
    stopping = told_to_stop()
    reading = consumer(options, group_id=options["group"], max_poll_records=20)
    reading.subscribe([options["topic"]], listener=Assigned())
    await reading.start()
    while not stopping.is_set():
        writing = AIOKafkaProducer(
            **connection(options),
            transactional_id=options["transactional_id"],
            transaction_timeout_ms=30_000,
        )
        try:
            await writing.start()
            await work(options, reading, writing, stopping)
        except KafkaError as error:
            tell(retry=repr(error))
            await rewind(reading)
        finally:
            await asyncio.wait({asyncio.create_task(writing.stop())}, timeout=5)
    await reading.stop()


async def work(
    options: Options,
    reading: AIOKafkaConsumer,
    writing: AIOKafkaProducer,
    stopping: threading.Event,
) -> None:
    """With one producer, until it fails."""
    rounds = 0
    while not stopping.is_set():
        batch = [one for many in (await reading.getmany(timeout_ms=200)).values() for one in many]
        if not batch:
            continue
        rounds += 1
        await writing.begin_transaction()
        for one in batch:
            await writing.send(options["output"], one.value, one.key)
        ends = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in batch}
        await writing.send_offsets_to_transaction(ends, options["group"])
        if rounds % 4 == 0:
            await writing.abort_transaction()
            await rewind(reading)
            continue
        await writing.commit_transaction()
        tell(committed=[int(one.value) for one in batch])


async def rewind(reading: AIOKafkaConsumer) -> None:
    """To what the group has committed."""
    for part in reading.assignment():
        reading.seek(part, await reading.committed(part) or 0)


def awaited(role: Callable[[Options], Coroutine[Any, Any, None]]) -> Callable[[Options], None]:
    return lambda options: asyncio.run(role(options))


if __name__ == "__main__":
    roles = {"produce": produce, "consume": consume, "member": member, "transform": transform}
    run({name: awaited(role) for name, role in roles.items()})

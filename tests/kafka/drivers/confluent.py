"""Drives confluent-kafka, which is librdkafka."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.drivers.driving import Options, key_of, numbers, run, tell, text, told_to_stop


def connection(options: Options) -> dict[str, Any]:
    return {
        "bootstrap.servers": options["brokers"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "anybody",
        "sasl.password": options["password"],
        "reconnect.backoff.max.ms": 500,
    }


def consumer(options: Options, **more: Any) -> Consumer:
    settings = {
        **connection(options),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "group.id": options.get("group") or "none",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
    }
    return Consumer({**settings, **more})


def create(options: Options) -> None:
    new = NewTopic(options["topic"], options["partitions"])
    admin = AdminClient(connection(options))
    for created in admin.create_topics([new]).values():
        created.result(30)


def produce(options: Options) -> None:
    def acknowledged(error: object, message: Message) -> None:
        if error:
            tell(failed=text(message.value()), error=str(error))
        else:
            tell(acked=int(message.value()))

    producer = Producer(
        {
            **connection(options),
            "enable.idempotence": options["idempotent"],
            "compression.type": options["codec"],
            "message.timeout.ms": 120_000,
        }
    )
    headers = [("from", options["sender"].encode())]
    for n in numbers(options):
        producer.produce(
            options["topic"], str(n), key_of(n), headers=headers, on_delivery=acknowledged
        )
        producer.poll(0)
    assert producer.flush(120) == 0


def tell_record(message: Message) -> None:
    where = [message.topic(), message.partition(), message.offset()]
    sender = dict(message.headers() or []).get("from")
    tell(record=[*where, text(message.key()), text(message.value()), text(sender)])


def consume(options: Options) -> None:
    reading = consumer(options)
    known = reading.list_topics(options["topic"], 30).topics[options["topic"]].partitions
    reading.assign([TopicPartition(options["topic"], p, 0) for p in known])
    for _ in range(options["count"]):
        while (message := reading.poll(1)) is None or message.error():
            pass
        tell_record(message)
    reading.close()


def member(options: Options) -> None:
    stopping = told_to_stop()
    more = {"group.instance.id": options["instance"]} if options.get("instance") else {}
    reading = consumer(options, **more)

    def assigned(_: Consumer, parts: list[TopicPartition]) -> None:
        tell(assigned=[[part.topic, part.partition] for part in parts])

    reading.subscribe([options["topic"]], on_assign=assigned, on_revoke=lambda *_: None)
    while not stopping.is_set():
        message = reading.poll(0.1)
        if message is None:
            continue
        if message.error():
            tell(error=str(message.error()))
            continue
        tell_record(message)
        try:
            reading.commit(message, asynchronous=False)
        except KafkaException as error:
            tell(error=str(error))
    reading.close()


def transform(options: Options) -> None:
    stopping = told_to_stop()
    reading = consumer(options)
    reading.subscribe([options["topic"]], on_assign=lambda *_: tell(ready=True))
    while not stopping.is_set():
        try:
            work(options, reading, stopping)
        except KafkaException as error:
            tell(retry=str(error))
            rewind(reading)
    reading.close()


def work(options: Options, reading: Consumer, stopping: Any) -> None:
    """One producer, until it fails."""
    settings = {"transactional.id": options["transactional_id"], "transaction.timeout.ms": 30_000}
    writing = Producer({**connection(options), **settings})
    writing.init_transactions(60)
    rounds = 0
    while not stopping.is_set():
        batch = [one for one in reading.consume(20, 0.2) if not one.error()]
        if not batch:
            continue
        rounds += 1
        writing.begin_transaction()
        for one in batch:
            writing.produce(options["output"], one.value(), one.key())
        ends = {(one.topic(), one.partition()): one.offset() + 1 for one in batch}
        offsets = [TopicPartition(*part, offset) for part, offset in ends.items()]
        writing.send_offsets_to_transaction(offsets, reading.consumer_group_metadata(), 30)
        if rounds % 4 == 0:
            writing.abort_transaction(30)
            rewind(reading)
            continue
        writing.commit_transaction(30)
        tell(committed=[int(one.value()) for one in batch])


def rewind(reading: Consumer) -> None:
    """To what the group has committed."""
    while True:
        try:
            parts = reading.committed(reading.assignment(), 30)
            break
        except KafkaException as error:
            tell(retry=str(error))
    for part in parts:
        reading.seek(TopicPartition(part.topic, part.partition, max(part.offset, 0)))


if __name__ == "__main__":
    run(
        {
            "create": create,
            "produce": produce,
            "consume": consume,
            "member": member,
            "transform": transform,
        }
    )

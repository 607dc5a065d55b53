"""Drives kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.kafka.drivers.driving import Options, key_of, numbers, run, tell, text, told_to_stop


def connection(options: Options) -> dict[str, Any]:
    return {
        "bootstrap_servers": options["brokers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "anybody",
        "sasl_plain_password": options["password"],
        "reconnect_backoff_max_ms": 500,
    }


def consumer(options: Options, **more: Any) -> KafkaConsumer:
    return KafkaConsumer(
        **connection(options),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        **more,
    )


def produce(options: Options) -> None:
    def acknowledged(n: int) -> None:
        tell(acked=n)

    producer = KafkaProducer(
        **connection(options),
        acks="all",
        enable_idempotence=options["idempotent"],
        compression_type=None if options["codec"] == "none" else options["codec"],
        delivery_timeout_ms=120_000,
    )
    headers = [("from", options["sender"].encode())]
    for n in numbers(options):
        sent = producer.send(options["topic"], str(n).encode(), key_of(n).encode(), headers)
        sent.add_callback(lambda _, n=n: acknowledged(n))
        sent.add_errback(lambda error, n=n: tell(failed=n, error=repr(error)))
    producer.flush(120)
    producer.close()


def tell_record(record: Any) -> None:
    where = [record.topic, record.partition, record.offset]
    sender = dict(record.headers).get("from")
    tell(record=[*where, text(record.key), text(record.value), text(sender)])


def consume(options: Options) -> None:
    reading = consumer(options)
    parts = reading.partitions_for_topic(options["topic"])
    reading.assign([TopicPartition(options["topic"], p) for p in parts])
    for _ in range(options["count"]):
        tell_record(next(reading))
    reading.close()


class Assigned(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: Any) -> None:
        tell(assigned=[[part.topic, part.partition] for part in assigned], ready=True)

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass


def member(options: Options) -> None:
    stopping = told_to_stop()
    reading = consumer(
        options, group_id=options["group"], group_instance_id=options.get("instance")
    )
    reading.subscribe([options["topic"]], listener=Assigned())
    while not stopping.is_set():
        for records in reading.poll(100).values():
            for record in records:
                tell_record(record)
        try:
            reading.commit()
        except KafkaError as error:
            tell(error=repr(error))
    reading.close()


def transform(options: Options) -> None:
    stopping = told_to_stop()
    reading = consumer(options, group_id=options["group"], max_poll_records=20)
    reading.subscribe([options["topic"]], listener=Assigned())
    while not stopping.is_set():
        try:
            work(options, reading, stopping)
        except KafkaError as error:
            tell(retry=repr(error))
            rewind(reading)
    reading.close()


def work(options: Options, reading: KafkaConsumer, stopping: Any) -> None:
    """One producer, until it fails."""
    writing = KafkaProducer(
        **connection(options),
        transactional_id=options["transactional_id"],
        transaction_timeout_ms=30_000,
    )
    try:
        writing.init_transactions()
        rounds = 0
        while not stopping.is_set():
            batch = [one for many in reading.poll(200).values() for one in many]
            if not batch:
                continue
            rounds += 1
            writing.begin_transaction()
            for one in batch:
                writing.send(options["output"], one.value, one.key)
            ends = {
                TopicPartition(one.topic, one.partition): OffsetAndMetadata(one.offset + 1, "", -1)
                for one in batch
            }
            writing.send_offsets_to_transaction(ends, reading.group_metadata())
            if rounds % 4 == 0:
                writing.abort_transaction()
                rewind(reading)
                continue
            writing.commit_transaction()
            tell(committed=[int(one.value) for one in batch])
    finally:
        writing.close(timeout=1)


def rewind(reading: KafkaConsumer) -> None:
    """To what the group has committed."""
    for part in reading.assignment():
        reading.seek(part, reading.committed(part) or 0)


if __name__ == "__main__":
    run({"produce": produce, "consume": consume, "member": member, "transform": transform})

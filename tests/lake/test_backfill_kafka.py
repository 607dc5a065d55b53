"""The job backfill reads a Kafka topic by Spark's own source. The Kafka is our listener."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.kafka.broker import KafkaBroker, kafka_broker
from tests.support.load import Connection

pytestmark = pytest.mark.neighbours

ROOT = Path(__file__).parents[2]
SPARK = ROOT / ".state" / "spark"
BEGIN_MS = 1_790_000_000_000
COUNT = 500
CONFIG = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="any" \
password="{password}";
"""


def produce(broker: KafkaBroker) -> None:
    """Numbers in turns into two partitions; in one of them a time goes back."""
    producer = Producer(
        {
            "bootstrap.servers": broker.options["brokers"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "any",
            "sasl.password": broker.options["password"],
        }
    )
    for n in range(COUNT):
        producer.produce(
            "old",
            b"%d" % n,
            b"key-%d" % n if n % 3 else None,
            partition=n % 2,
            timestamp=time_ms(n),
            headers=[("n", b"%d" % n)],
        )
    assert producer.flush(60) == 0


def time_ms(n: int) -> int:
    return BEGIN_MS + (n if n != 100 else 10)


async def backfill(broker: KafkaBroker, folder: Path, until: list[int]) -> None:
    (folder / "kafka.properties").write_text(CONFIG.format(**broker.options))
    jars = ",".join(map(str, sorted((SPARK / "jars").glob("*.jar"))))
    process = await asyncio.create_subprocess_exec(
        SPARK / "bin" / "python",
        *("-m", "pyspark_seb.jobs.backfill", "--url", f"http://127.0.0.1:{broker.seb.port}"),
        *("--token-file", broker.seb.data / "admin.key", "--kafka", broker.options["brokers"]),
        *("--kafka-config", folder / "kafka.properties", "--from-topic", "old"),
        *("--until", json.dumps(dict(enumerate(until))), "--to-topic", "new"),
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "spark")]),
            "PYSPARK_PYTHON": str(SPARK / "bin" / "python"),
            "PYSPARK_SUBMIT_ARGS": f"--master local[1] --driver-memory 1g --jars {jars} "
            "--conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1 "
            "--conf spark.driver.host=127.0.0.1 pyspark-shell",
        },
    )
    _, told = await process.communicate()
    assert process.returncode == 0, told.decode()[-3_000:]


async def records_of(broker: KafkaBroker, topic: str) -> list[dict[str, Any]]:
    connection, found, offset = Connection(broker.seb.port), [], 0
    try:
        while True:
            path = f"/v1/topics/{topic}/records?offset={offset}"
            headers = {"Authorization": f"Bearer {broker.seb.admin_key}"}
            read = json.loads((await connection.request("GET", path, headers=headers)).body)
            if not read["records"]:
                return found
            found += read["records"]
            offset = read["next_offset"]
    finally:
        connection.close()


async def test_a_kafka_topic_becomes_a_log_with_keys_headers_and_times(tmp_path: Path) -> None:
    """Twice the same stores it once. Records beyond the given ends stay away."""
    if not list((SPARK / "jars").glob("spark-sql-kafka-*.jar")):
        pytest.skip("Spark's Kafka source is not installed (sh tests/lake/install-spark.sh)")
    async with kafka_broker(tmp_path) as broker:
        await broker.create("old", 2)
        await asyncio.to_thread(produce, broker)
        for _ in range(2):
            await backfill(broker, tmp_path, [COUNT // 2, COUNT // 2 - 10])
        found = await records_of(broker, "new")
    numbers = [int(one["value"]) for one in found]
    by_time = [*range(99), 100, 99, *range(101, COUNT - 20)]  # 100 follows 98 in its partition
    assert numbers == [*by_time, *range(COUNT - 20, COUNT, 2)]
    for n, one in zip(numbers, found, strict=True):
        assert one.get("key") == (f"key-{n}" if n % 3 else None)
        assert one["headers"] == {"n": str(n)}
        assert datetime.fromisoformat(one["timestamp"]).timestamp() * 1_000 == time_ms(n)

"""MirrorMaker 2 copies topics and the offsets of groups from one appliance to another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaBroker, kafka_broker
from tests.kafka.clients import CONFLUENT, INSTALLED, WITHIN_S, Driver, driving
from tests.senders.shippers import installed, running
from tests.support.load import Connection

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]
JARS = INSTALLED / "mirror"
MIRROR = """
clusters = here, there
here->there.enabled = true
here->there.topics = orders
here->there.sync.group.offsets.enabled = true
there->here.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
there.scheduled.rebalance.max.delay.ms = 1000
there.offset.flush.interval.ms = 1000
offset.lag.max = 0
sync.group.offsets.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
"""
CLUSTER = """
{name}.bootstrap.servers = {brokers}
{name}.security.protocol = SASL_PLAINTEXT
{name}.sasl.mechanism = PLAIN
{name}.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \
username="any" password="{password}";
"""


@contextmanager
def mirroring(folder: Path, here: KafkaBroker, there: KafkaBroker) -> Iterator[Path]:
    """The file has what it prints."""
    installed(any(JARS.glob("connect-mirror-*.jar")), "MirrorMaker 2")
    properties = folder / "mirror.properties"
    properties.write_text(
        MIRROR
        + CLUSTER.format(name="here", **here.options)
        + CLUSTER.format(name="there", **there.options)
    )
    program = "org.apache.kafka.connect.mirror.MirrorMaker"
    command: list[str | Path] = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-cp", f"{JARS}/*"]
    with running(folder, [*command, program, properties], lambda: True) as output:
        yield output


async def test_a_group_goes_on_at_the_copy_over_kill_9_of_both(tmp_path: Path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    async with kafka_broker(tmp_path / "here") as here, kafka_broker(tmp_path / "there") as there:
        await here.create("orders", 2)
        await produce(here, 0)
        before = await read(here, "orders", set(range(100)))
        with mirroring(tmp_path, here, there):
            await is_committed(there, 100)
            await there.kill_and_start_again()
            await here.kill_and_start_again()
            await produce(here, 100)
            await there.holds("here.orders", 2, 200)
            after = await read(there, "here.orders", set(range(100, 200)))
        copied = await there.values("here.orders", 2)
    assert {n for part in copied for n in part} == set(range(200))
    assert before - after, "the group begins again at the copy"


async def produce(broker: KafkaBroker, first: int) -> None:
    """100 numbers, acknowledged."""
    how = {"codec": "none", "idempotent": True, "pause_ms": 0, "sender": "somebody"}
    given = {**broker.options, **how, "topic": "orders", "first": first, "count": 100}
    async with driving(CONFLUENT, "produce", broker.folder, **given) as producing:
        await producing.done()


async def read(broker: KafkaBroker, topic: str, wanted: set[int]) -> set[int]:
    """What the group `billing` reads, and commits, until it has what is wanted."""
    given = {**broker.options, "topic": topic, "group": "billing"}
    async with driving(CONFLUENT, "member", broker.folder, **given) as member:
        await member.until(lambda: numbers(member) >= wanted)
        await member.stop()
    return numbers(member)


async def is_committed(broker: KafkaBroker, count: int) -> None:
    """Wait until the group has committed so many records at the copy."""
    headers = {"Authorization": f"Bearer {broker.seb.admin_key}"}
    connection = Connection(broker.seb.port)
    try:
        async with asyncio.timeout(WITHIN_S):
            while True:
                answer = await connection.request("GET", "/v1/groups/billing", headers=headers)
                topics = json.loads(answer.body).get("topics", [])
                if sum(one["committed_offset"] for one in topics) >= count:
                    return
                await asyncio.sleep(0.1)
    finally:
        connection.close()


def numbers(member: Driver) -> set[int]:
    return {int(record[4]) for record in member.all("record")}

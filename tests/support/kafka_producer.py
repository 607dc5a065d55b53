"""A Kafka producer with a transactional id, request by request."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.kafka_client import Client
from tests.unit.protocols.kafka.record_sets import Sent, made


class Producer(NamedTuple):
    client: Client
    transactional_id: str
    identity: dict[str, int]

    async def call(self, name, version=None, **body):
        given = {"transactional_id": self.transactional_id, **self.identity, **body}
        return await self.client.call(name, version, **given)

    async def add(self, topic, *indexes, version=None):
        asked = [{"name": topic, "partitions": indexes or (0,)}]
        answer = await self.call("AddPartitionsToTxn", version, topics=asked)
        parts = answer["results_by_topic"][0]["results_by_partition"]
        return [one["partition_error_code"] for one in parts]

    async def send(self, topic, sequence, *given):
        stamp = self.identity["producer_id"], self.identity["producer_epoch"], sequence
        records = made(*map(Sent, given), producer=stamp, in_txn=1)
        name = self.transactional_id
        part = await self.client.produce(topic, records, transactional_id=name)
        return part["error_code"]

    async def end(self, commits, version=None):
        return (await self.call("EndTxn", version, committed=commits))["error_code"]

    async def commit_offset(self, group, topic, offset):
        assert (await self.call("AddOffsetsToTxn", group_id=group))["error_code"] == 0
        part = [{"partition_index": 0, "committed_offset": offset}]
        asked = [{"name": topic, "partitions": part}]
        answer = await self.call("TxnOffsetCommit", group_id=group, topics=asked, generation_id=-1)
        return answer["topics"][0]["partitions"][0]["error_code"]


async def begun(client, transactional_id, version=None, **given):
    asked = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1, **given}
    answer = await client.call(
        "InitProducerId", version, transactional_id=transactional_id, **asked
    )
    assert answer["error_code"] == 0, answer
    names = ("producer_id", "producer_epoch")
    return Producer(client, transactional_id, {name: answer[name] for name in names})


async def committed(client, group, topic, **given):
    asked = [{"name": topic, "partition_indexes": [0]}]
    groups = [{"group_id": group, "topics": asked}]
    answer = await client.call("OffsetFetch", groups=groups, **given)
    part = answer["groups"][0]["topics"][0]["partitions"][0]
    return part["error_code"], part["committed_offset"]

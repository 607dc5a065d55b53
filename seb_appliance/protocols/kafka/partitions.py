"""Kafka's partitions are topics: partition 0 of `orders` is the topic `orders`, partition 2 is
`orders.kafka-2`.

A topic has as many partitions as topics of these names exist without a gap. HTTP reads all of them
by the patterns `orders` and `orders.kafka-*`; grants on `orders` cover them for Kafka clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.topics.topics import Topics

_MARK: Final = ".kafka-"
_NAME: Final = re.compile(r"(.+)\.kafka-([1-9][0-9]{0,3})")


def topic_of(name: str, partition: int) -> str:
    """The topic that holds the partition. It may not exist."""
    return name if partition == 0 else f"{name}.kafka-{partition}"


def partition_of(topic: str) -> tuple[str, int]:
    """Name and partition of a topic."""
    found = _NAME.fullmatch(topic)
    return (topic, 0) if found is None else (found[1], int(found[2]))


def count_of(topics: Topics, name: str) -> int:
    """How many partitions there are; 0 if there is no such topic."""
    if not topics.exists(name):
        return 0
    count = 1
    while count < limits.KAFKA_PARTITIONS_MAX and topics.exists(topic_of(name, count)):
        count += 1
    return count


def names_of(topics: Iterable[str]) -> dict[str, int]:
    """All names as Kafka has them, and their numbers of partitions. A topic that only looks like a
    partition has a name of its own."""
    there = set(topics)
    counts = dict.fromkeys(there, 1)
    numbered = [(*partition_of(topic), topic) for topic in there if _MARK in topic]
    for name, partition, topic in sorted(numbered, key=lambda one: one[1]):
        if partition and counts.get(name) == partition:
            counts[name] = partition + 1
            del counts[topic]
    return counts

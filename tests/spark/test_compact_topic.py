"""`spark/jobs/compact_topic.py`: a topic is compacted on the cluster while it is written and read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from pyspark_seb.errors import ApplianceError

from tests.spark.conftest import House, value_of
from tests.spark.test_jobs import asked, job

COUNT, KEYS, SIZE = 60_000, 5_000, 100


def topic_of(house: House, **settings: object) -> str:
    """Compacted, but not by the appliance: it would be quicker."""
    topic = house.name("compacted")
    settings = {"cleanup": "compact", "dirty_ratio": 0.99, "tombstone_retention_ms": 0, **settings}
    house.appliance.send("PUT", f"/v1/topics/{topic}", settings)
    return topic


def newest(rows: Iterator) -> dict[bytes, tuple[int, bytes | None]]:
    return {bytes(row.key): (row.offset, row.value) for row in sorted(rows, key=lambda r: r.offset)}


def read(spark, house: House, topic: str, **more: object) -> list:
    given = house.options(topics=topic, includeHeaders="false", **more)
    return (
        spark.read.format("seb").options(**given).load().select("key", "value", "offset").collect()
    )


def test_a_topic_compacted_on_the_cluster_is_what_a_dictionary_is(spark, house) -> None:
    compact, topic = job("compact_topic"), topic_of(house)

"""The job compact_topic: a topic is compacted on the cluster while it is written and read.

The tidier leaves the topics of these tests alone: what it has not compacted is too small beside a
run that is there, and too large to be compacted with it (due.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark import jobs
from tests.spark.conftest import ROOT, House, value_of
from tests.spark.test_stream import Sink, run

COUNT, KEYS, SIZE = 60_000, 3_000, 200


def filled(house: House) -> str:
    """A topic in segments, of which the tidier has compacted the first ones."""
    topic = house.name("compacted")
    settings = {"cleanup": "compact", "min_compaction_lag_ms": 3_600_000, "dirty_ratio": 0.99}
    house.appliance.send("PUT", f"/v1/topics/{topic}", settings)
    house.produce(topic, KEYS, size=SIZE, keys=KEYS)
    # Beside other small topics it lies in an object with them, which is no segment.
    house.until(topic, lambda found: found["segments_end_offset"] >= KEYS)
    house.change(topic, min_compaction_lag_ms=0)
    house.until(topic, lambda found: found["compacted_seq"])
    house.produce(topic, COUNT - KEYS, size=SIZE, keys=KEYS)
    house.produce(topic, 10, size=SIZE)
    house.until(topic, lambda found: found["segments_end_offset"] > COUNT / 2)
    return topic


def compacted(spark, house: House, topic: str) -> None:
    result = jobs.run(spark, house, "compact_topic", "--topic", topic, "--tasks", 4)
    assert result.figures["dirty_bytes"] > COUNT * SIZE / 3
    assert result.sentence == f"{topic}: in force."


def rows(spark, house: House, topic: str, transport: str = "direct") -> list:
    given = house.options(topics=topic, transport=transport)
    frame = spark.read.format("seb").options(**given).load().select("key", "value", "offset")
    return sorted(frame.collect(), key=lambda row: row.offset)


def table(found: Iterable) -> dict[bytes, bytes]:
    """What a reader of the topic knows at its end."""
    return {bytes(row.key): bytes(row.value) for row in found if row.key is not None}


def last_values(until: int, begin: int = 0) -> dict[bytes, bytes]:
    return {b"key-%d" % (n % KEYS): value_of(n, SIZE) for n in range(begin, until)}


@contextmanager
def appending(house: House, topic: str) -> Iterator[None]:
    """A producer appends all the while, at a pace: the test counts what is left of the others."""
    others, over = House(house.seb, house.bucket), threading.Event()

    def produce() -> None:
        while not over.wait(0.5):
            others.produce(topic, 100, size=SIZE, keys=KEYS)
        others.appliance.close()

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield
    finally:
        over.set()
        producer.join()


def test_a_topic_compacted_on_the_cluster_is_what_a_dictionary_is(spark, house) -> None:
    """A producer goes on meanwhile; the job is run once more."""
    topic = filled(house)
    before = rows(spark, house, topic)
    assert len(before) == COUNT + 10, "the tidier was quicker"
    with appending(house, topic):
        compacted(spark, house, topic)
    assert house.log_end(topic) > COUNT + 10
    found = rows(spark, house, topic)
    assert table(found) == {
        **last_values(COUNT),
        **last_values(house.log_end(topic), COUNT + 10),
    }
    assert table(before) == last_values(COUNT)
    assert len(found) < COUNT / 2
    assert [row.offset for row in found if row.key is None] == list(range(COUNT, COUNT + 10))
    assert rows(spark, house, topic, "api") == found
    jobs.run(spark, house, "compact_topic", "--topic", topic, "--tasks", 4)
    assert table(rows(spark, house, topic)) == table(found)
    assert_fsck_is_clean(house)


@pytest.mark.neighbours  # for the time: minutes, with a JVM for each step
def test_a_compaction_that_is_killed_before_each_step_has_changed_nothing(spark, house) -> None:
    """Once the segments are handed over, the appliance needs the job no more."""
    topic = filled(house)
    first = house.until(topic, lambda found: found["compacted_seq"])
    before = rows(spark, house, topic)
    number = 1
    while jobs.is_killed_before_step(house, number, "compact_topic", "--topic", topic):
        number += 1
        if number <= 5:
            assert rows(spark, house, topic) == before
        else:
            house.until(topic, lambda found: found["compacted_seq"] > first["compacted_seq"])
            assert len(rows(spark, house, topic)) < COUNT / 2
        assert table(rows(spark, house, topic)) == table(before)
    assert number == 6
    found = rows(spark, house, topic)
    assert table(found) == table(before)
    assert set(map(tuple, found)) < set(map(tuple, before))
    assert rows(spark, house, topic, "api") == found
    assert_fsck_is_clean(house)


def assert_fsck_is_clean(house: House) -> None:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("SEB_")}
    shown = subprocess.run(
        [sys.executable, "-m", "seb_appliance", "fsck", "--bucket-only"],
        env={**ours, **house.bucket.environment, "SEB_BUCKET": house.bucket.address},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr


def test_reads_go_on_while_the_topic_is_compacted(spark, house, tmp_path: Path) -> None:
    """A batch planned before, and a stream from one trigger to the next."""
    topic, group, sink = filled(house), house.name("group"), Sink()
    limited = {"topics": topic, "group": group, "transport": "direct"}
    half = {**limited, "maxRecordsPerTrigger": COUNT // 2}
    sink.fail_at = 1  # half of it is read, then the topic is compacted
    with pytest.raises(Exception, match="the sink fails"):
        run(spark, house, tmp_path, sink, **half)
    given = house.options(**limited, failOnCompaction="false")
    planned = spark.read.format("seb").options(**given).load().select("key", "value", "offset")
    compacted(spark, house, topic)
    sink.fail_at = None
    run(spark, house, tmp_path, sink, **half)
    left = rows(spark, house, topic)
    assert sorted(planned.collect(), key=lambda row: row.offset) == left
    assert table(left) == last_values(COUNT)
    first = COUNT // 2
    assert sink.batches[0] == list(range(first))
    assert sink.offsets[first:] == [row.offset for row in left if row.offset >= first]
    assert house.committed(group, topic) == house.log_end(topic)

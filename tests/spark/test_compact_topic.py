"""The job compact_topic: a topic is compacted on the cluster while it is written and read.

The tidier compacts, too, and may be quicker: what is done here is then done again with a new topic.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark_seb import compacting
from pyspark_seb.errors import ConflictError

from tests.spark import jobs
from tests.spark.conftest import ROOT, House, value_of
from tests.spark.test_stream import Sink, run

COUNT, KEYS, SIZE = 30_000, 2_000, 200


def filled(house: House) -> str:
    """A topic in segments, which the tidier does not compact yet."""
    topic = house.name("compacted")
    settings = {"cleanup": "compact", "min_compaction_lag_ms": 3_600_000}
    house.appliance.send("PUT", f"/v1/topics/{topic}", settings)
    house.produce(topic, COUNT, size=SIZE, keys=KEYS)
    house.produce(topic, 10, size=SIZE)
    house.tidied(topic)
    return topic


def compacted(spark, house: House, topic: str) -> str:
    """What came of the job; "late" when the tidier was quicker."""
    house.change(topic, min_compaction_lag_ms=0)
    try:
        result = jobs.run(spark, house, "compact_topic", "--topic", topic, "--tasks", 4)
    except ConflictError:  # the tidier has already replaced what it read
        return "late"
    if "compacted before" in result.sentence:
        return "late"
    assert result.sentence == f"{topic}: in force."
    return "in_force"


def first_in_force(house: House, work: Callable[[str], str]) -> str:
    """The topic that was compacted on the cluster. `work`: fills none, and says what came of it."""
    for _ in range(3):
        topic = filled(house)
        if work(topic) != "late":
            return topic
    raise AssertionError("the tidier was quicker three times")


def rows(spark, house: House, topic: str, transport: str = "direct") -> list:
    given = house.options(topics=topic, transport=transport)
    frame = spark.read.format("seb").options(**given).load().select("key", "value", "offset")
    return sorted(frame.collect(), key=lambda row: row.offset)


def table(found: Iterable) -> dict[bytes, bytes]:
    """What a reader of the topic knows at its end."""
    return {bytes(row.key): bytes(row.value) for row in found if row.key is not None}


def last_values(until: int, begin: int = 0) -> dict[bytes, bytes]:
    return {b"key-%d" % (n % KEYS): value_of(n, SIZE) for n in range(begin, until)}


def died(spark, house: House, topic: str) -> bool:
    """Whether the job began, and died before it handed anything over."""

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    house.change(topic, min_compaction_lag_ms=0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compacting, "bases_of", dies)
        try:
            jobs.run(spark, house, "compact_topic", "--topic", topic)
        except KeyboardInterrupt:
            return True
    return False


@contextmanager
def appending(house: House, topic: str) -> Iterator[None]:
    """A producer appends all the while."""
    others, over = House(house.seb, house.bucket), threading.Event()

    def produce() -> None:
        while not over.is_set():
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

    def work(topic: str) -> str:
        with appending(house, topic):
            return compacted(spark, house, topic)

    topic = first_in_force(house, work)
    assert house.log_end(topic) > COUNT + 10
    house.change(topic, min_compaction_lag_ms=3_600_000)  # the tidier stays away
    found = rows(spark, house, topic)
    assert table(found) == {
        **last_values(COUNT),
        **last_values(house.log_end(topic), COUNT + 10),
    }
    assert len(found) < COUNT / 2
    assert [row.offset for row in found if row.key is None] == list(range(COUNT, COUNT + 10))
    assert rows(spark, house, topic, "api") == found
    compacted(spark, house, topic)
    assert table(rows(spark, house, topic)) == table(found)
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
    """A batch planned before, and a stream from one trigger to the next; a run dies, too."""
    sink = Sink()
    group = house.name("group")
    planned: list = []

    def work(topic: str) -> str:
        nonlocal sink, group
        sink, group = Sink(), house.name("group")
        limited = {"topics": topic, "group": group, "transport": "direct"}
        half = {**limited, "maxRecordsPerTrigger": COUNT // 2}
        checkpoint = tmp_path / topic
        sink.fail_at = 1  # half of it is read, then the topic is compacted
        with pytest.raises(Exception, match="the sink fails"):
            run(spark, house, checkpoint, sink, **half)
        given = house.options(**limited, failOnCompaction="false")
        frame = spark.read.format("seb").options(**given).load()
        planned[:] = [frame.select("key", "value", "offset")]
        outcome = compacted(spark, house, topic) if died(spark, house, topic) else "late"
        sink.fail_at = None
        run(spark, house, checkpoint, sink, **half)
        return outcome

    topic = first_in_force(house, work)
    left = rows(spark, house, topic)
    assert sorted(planned[0].collect(), key=lambda row: row.offset) == left
    assert table(left) == last_values(COUNT)
    first = COUNT // 2
    assert sink.batches[0] == list(range(first))
    assert sink.offsets[first:] == [row.offset for row in left if row.offset >= first]
    assert house.committed(group, topic) == house.log_end(topic)

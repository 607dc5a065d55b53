"""Streams: the checkpoint is the truth, the group follows it, and no failure skips a record."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark_seb import batch_offsets, commit

from tests.spark.conftest import House

IDLE_S = 8


class Sink:
    """What came out of a stream, batch by batch; fails where a test says so."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.fail_at: int | None = None

    def __call__(self, frame, batch_id: int) -> None:
        if batch_id == self.fail_at:
            raise RuntimeError("the sink fails")
        self.batches[batch_id] = sorted(row.offset for row in frame.select("offset").collect())

    @property
    def offsets(self) -> list[int]:
        return sorted(offset for found in self.batches.values() for offset in found)


def run(spark, house: House, checkpoint: Path, sink: Sink, **options: object) -> list[int]:
    """Read what is there now into the sink; how many records each batch had."""
    records = spark.readStream.format("seb").options(**house.options(**options)).load()
    query = (
        records.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return [len(found) for found in sink.batches.values()]


def test_the_group_is_told_after_each_batch_and_the_last(spark, house, tmp_path) -> None:
    """Pitfalls 5 and 17: Spark's own commit comes a batch late; limits hold."""
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 100)
    asked = {"topics": topic, "group": group, "maxRecordsPerTrigger": 40}
    assert run(spark, house, tmp_path, sink, **asked) == [40, 40, 20]
    assert sink.offsets == list(range(100))
    assert house.committed(group, topic) == 100
    house.produce(topic, 5)
    run(spark, house, tmp_path, sink, **asked)
    assert sink.offsets == list(range(105))
    assert house.committed(group, topic) == 105


def test_a_first_batch_that_fails_skips_nothing(spark, house, tmp_path) -> None:
    """Pitfall 6: "latest" of a first start is pinned before anything is read."""
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 10)
    asked = {"topics": topic, "group": group, "startingOffsets": "latest"}
    run(spark, house, tmp_path / "first", Sink(), **asked)
    assert house.committed(group, topic) == 10
    house.produce(topic, 5)
    sink.fail_at = 0
    with pytest.raises(PySparkException):
        run(spark, house, tmp_path / "second", sink, **asked)
    house.produce(topic, 5)
    sink.fail_at = None
    run(spark, house, tmp_path / "second", sink, **asked)
    assert sink.offsets == list(range(10, 20))


def test_the_checkpoint_wins_over_the_group(spark, house, tmp_path) -> None:
    """Pitfall 7."""
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 20)
    asked = {"topics": topic, "group": group}
    run(spark, house, tmp_path, sink, **asked)
    house.commit(group, topic, 3, allow_backward=True)
    house.produce(topic, 10)
    run(spark, house, tmp_path, sink, **asked)
    assert sink.offsets == list(range(30))
    assert house.committed(group, topic) == 30


def test_a_group_that_stands_somewhere_is_where_a_stream_begins(spark, house, tmp_path) -> None:
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 20)
    house.commit(group, topic, 15)
    run(spark, house, tmp_path / "a", sink, topics=topic, group=group, startingOffsets="earliest")
    assert sink.offsets == list(range(15, 20))
    with pytest.raises(PySparkException) as error:
        run(spark, house, tmp_path / "b", sink, topics=topic, group=group, startingOffsets=3)
    assert "stands at 20" in str(error.value)


def test_a_commit_that_fails_does_not_end_the_stream(spark, house, tmp_path) -> None:
    """Pitfall 8: somebody has moved the group ahead, so that it cannot be told."""
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 20)
    asked = {"topics": topic, "group": group, "maxRecordsPerTrigger": 10}
    run(spark, house, tmp_path, sink, **asked)
    house.produce(topic, 20)
    house.commit(group, topic, 40)
    run(spark, house, tmp_path, sink, **asked)
    assert sink.offsets == list(range(40))
    assert house.committed(group, topic) == 40


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs the option group"),
        ({"group": "g", "maxRecordsPerTriger": "1"}, "unknown option"),
    ],
)
def test_bad_options_of_a_stream_are_told(spark, house, tmp_path, options, said) -> None:
    """Pitfall 9: Spark shows an UnboundLocalError instead of what a stream reader raises."""
    topic = house.name()
    house.produce(topic, 1)
    with pytest.raises(PySparkException) as error:
        run(spark, house, tmp_path, Sink(), topics=topic, **options)
    assert said in str(error.value)
    assert "UnboundLocalError" not in str(error.value)


def test_retention_past_the_checkpoint_is_one_clear_error(spark, house, tmp_path) -> None:
    """Pitfall 10."""
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 20)
    asked = {"topics": topic, "group": group}
    run(spark, house, tmp_path, sink, **asked)
    house.produce(topic, 80)
    house.trim(topic, 50)
    with pytest.raises(PySparkException) as error:
        run(spark, house, tmp_path, sink, **asked)
    for part in ("30 records", "offset 20", "starts at 50"):
        assert part in str(error.value)
    run(spark, house, tmp_path, sink, **asked, failOnDataLoss="false")
    assert sink.offsets == [*range(20), *range(50, 100)]


def test_a_batch_that_is_replayed_has_the_same_records(spark, house, tmp_path) -> None:
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 30)
    sink.fail_at = 1
    asked = {"topics": topic, "group": group, "maxRecordsPerTrigger": 10}
    with pytest.raises(PySparkException):
        run(spark, house, tmp_path, sink, **asked)
    house.produce(topic, 30)
    sink.fail_at = None
    run(spark, house, tmp_path, sink, **{**asked, "maxRecordsPerTrigger": 1000})
    assert sink.batches[1] == list(range(10, 20))
    assert sink.offsets == list(range(60))


def test_a_topic_that_is_new_is_read_from_its_start(spark, house, tmp_path) -> None:
    prefix, group, sink = house.name("many"), house.name("group"), Sink()
    house.produce(f"{prefix}.a", 10)
    asked = {"topics": f"{prefix}.*", "group": group}
    run(spark, house, tmp_path, sink, **asked)
    house.produce(f"{prefix}.b", 7)
    run(spark, house, tmp_path, sink, **asked)
    assert [len(found) for found in sink.batches.values()] == [10, 0, 7]
    assert house.committed(group, f"{prefix}.b") == 7


def test_a_stream_that_goes_on_sees_records_as_they_come(spark, house, tmp_path) -> None:
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 10)
    records = spark.readStream.format("seb").options(**house.options(topics=topic, group=group))
    came = threading.Event()

    def write(frame, batch_id: int) -> None:
        sink(frame, batch_id)
        if len(sink.offsets) == 20:
            came.set()

    query = (
        records.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        house.produce(topic, 10)
        assert came.wait(60)
    finally:
        query.stop()
    assert sink.offsets == list(range(20))


def requests(house: House) -> int:
    """How many the appliance has answered."""
    found = house.appliance.get("/metrics").body.decode()
    rows = re.findall(r"^seb_(?:fast_lane|application)_requests_total (\S+)$", found, re.MULTILINE)
    return int(sum(map(float, rows)))


def test_an_idle_stream_asks_once_a_second_at_most_and_sees_a_record_at_once(
    spark, house, tmp_path
) -> None:
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 10)
    came, more = threading.Event(), threading.Event()

    def write(frame, batch_id: int) -> None:
        sink(frame, batch_id)
        (came if len(sink.offsets) == 10 else more).set()

    records = spark.readStream.format("seb").options(**house.options(topics=topic, group=group))
    query = (
        records.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        assert came.wait(60)
        query.awaitTermination(6)  # the group is told, and the position to wait at is asked for
        before = requests(house)
        query.awaitTermination(IDLE_S)
        assert requests(house) - before <= IDLE_S
        house.produce(topic, 5)
        assert more.wait(60)
    finally:
        query.stop()
    assert sink.offsets == list(range(15))


def test_progress_tells_how_far_the_stream_is_behind(spark, house, tmp_path) -> None:
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 100)
    given = house.options(topics=topic, group=group, maxOffsetsPerTrigger=40)
    query = (
        spark.readStream.format("seb")
        .options(**given)
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seen = [
        [json.loads(source[name])[topic]["offset"] for name in ("endOffset", "latestOffset")]
        for progress in query.recentProgress
        for source in progress["sources"]
        if progress["numInputRows"]
    ]
    assert seen == [[40, 100], [80, 100], [100, 100]]


def test_a_stream_that_runs_once_can_be_committed_to_where_the_data_ended(
    spark, house, tmp_path
) -> None:
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 100)
    given = house.options(topics=topic, group=group, maxOffsetsPerTrigger=40)
    query = (
        spark.readStream.format("seb")
        .options(**given)
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    assert sink.offsets == list(range(100))
    assert house.committed(group, topic) == 0  # Spark tells a source of a batch with the next one
    commit(query, group, given)
    assert house.committed(group, topic) == 100


def test_a_batch_of_a_stream_has_its_offsets_at_hand(spark, house, tmp_path) -> None:
    topic, group = house.name(), house.name("group")
    house.produce(topic, 100)
    house.commit(group, topic, 10)
    given = house.options(topics=topic, group=group, maxOffsetsPerTrigger=40)
    seen = []

    def write(frame, batch_id: int) -> None:
        found = batch_offsets(frame, batch_id, str(tmp_path), given)[topic]
        seen.append((found.start, found.end, frame.count()))

    query = (
        spark.readStream.format("seb")
        .options(**given)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert seen == [(10, 50, 40), (50, 90, 40), (90, 100, 10)]


def test_a_stream_that_may_lose_records_goes_on_at_the_log_start(spark, house, tmp_path) -> None:
    topic, group, sink = house.name(), house.name("group"), Sink()
    house.produce(topic, 5)
    lossy = {"failOnDataLoss": "false", "maxRecordsPerTrigger": 10}
    asked = {"topics": topic, "group": group, **lossy}
    run(spark, house, tmp_path, sink, **asked)
    house.produce(topic, 115)
    house.trim(topic, 100)
    run(spark, house, tmp_path, sink, **asked)
    assert sink.batches == {0: [*range(5)], 1: [*range(100, 110)], 2: [*range(110, 120)]}

"""Writes: appended once, whatever is tried again."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql
from pyspark_seb.writing.batch import BATCH_ID, QUERY_ID

from tests.spark.conftest import House


def numbers(spark, count: int, partitions: int = 2):
    return spark.range(0, count, 1, partitions).select(sql.col("id").cast("string").alias("value"))


def append(frame, house: House, topic: str | None = None) -> None:
    more = {} if topic is None else {"topic": topic}
    frame.write.format("seb").mode("append").options(**house.options(**more)).save()


def values(spark, house: House, topic: str) -> list[str]:
    records = spark.read.format("seb").options(**house.options(topics=topic)).load()
    return [
        row.text for row in records.select(sql.col("value").cast("string").alias("text")).collect()
    ]


def test_a_dataframe_is_appended_as_it_is(spark, house) -> None:
    topic = house.name()
    rows = [
        (b"k1", b"one", {"h": b"1"}, 1_790_000_000),
        (None, b"two", {}, 1_790_000_001),
        (b"k1", None, None, 1_790_000_002),
    ]
    frame = spark.createDataFrame(
        rows, "key binary, value binary, headers map<string, binary>, at long"
    ).coalesce(1)
    append(
        frame.select("key", "value", "headers", sql.timestamp_seconds("at").alias("timestamp")),
        house,
        topic,
    )
    read = spark.read.format("seb").options(**house.options(topics=topic)).load()
    came = sorted(read.collect(), key=lambda row: row.offset)
    assert [(row.key, row.value) for row in came] == [
        (b"k1", b"one"),
        (None, b"two"),
        (b"k1", None),
    ]
    assert [row.headers for row in came] == [{"h": b"1"}, {}, {}]
    assert [int(row.timestamp.timestamp()) for row in came] == [row[3] for row in rows]


def test_rows_go_to_the_topics_that_they_name(spark, house) -> None:
    a, b = house.name(), house.name()
    frame = spark.range(100).select(
        sql.when(sql.col("id") % 2 == 0, a).otherwise(b).alias("topic"),
        sql.col("id").cast("string").alias("value"),
    )
    append(frame, house)
    assert sorted(map(int, values(spark, house, a))) == list(range(0, 100, 2))
    assert sorted(map(int, values(spark, house, b))) == list(range(1, 100, 2))


def test_a_task_that_is_tried_again_stores_nothing_twice(spark, house, tmp_path) -> None:
    """Pitfall 12: its process is killed after it has appended some of its rows."""
    topic, count = house.name(), 100_000
    marker = tmp_path / "was killed"

    @sql.udf("string", useArrow=False)
    def dies_once(value: str) -> str:
        if value == "45000" and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), 9)
        return value

    append(numbers(spark, count).select(dies_once("value").alias("value")), house, topic)
    assert marker.exists()
    assert sorted(map(int, values(spark, house, topic))) == list(range(count))


def test_a_batch_of_a_stream_that_is_replayed_is_stored_once(spark, house, tmp_path) -> None:
    """Pitfall 13: the sink had everything, and Spark did not know."""
    source, target, group = house.name(), house.name(), house.name("group")
    house.produce(source, 1_000)
    checkpoint = tmp_path / "checkpoint"

    def copy() -> None:
        records = spark.readStream.format("seb").options(
            **house.options(topics=source, group=group, maxRecordsPerTrigger=500)
        )
        query = (
            records.load()
            .select("key", "value")
            .writeStream.format("seb")
            .options(**house.options(topic=target))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    copy()
    assert house.log_end(target) == 1_000
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    house.produce(source, 10)
    copy()
    assert house.log_end(target) == 1_010
    assert sorted(map(int, values(spark, house, target))) == list(range(1_010))


def test_a_batch_that_is_replayed_with_its_rows_in_another_order_is_an_error(
    spark, house, tmp_path
) -> None:
    source, target = house.name(), house.name()
    copy = Copy(spark, house, source, target, tmp_path / "checkpoint")
    for count in (10, 2_990):  # where the first batch begins, the group says
        house.produce(source, count)
        copy.run("offset")
    copy.forget_the_last_batch()
    with pytest.raises(PySparkException, match="other records for topic"):
        copy.run("-offset")
    assert values(spark, house, target) == [f"{n:020}" for n in range(3_000)]
    copy.run("offset")
    assert house.log_end(target) == 3_000


def test_a_batch_that_is_replayed_after_seven_days_is_refused(spark, house, tmp_path) -> None:
    source, target = house.name(), house.name()
    house.produce(source, 10)
    copy = Copy(spark, house, source, target, tmp_path / "checkpoint")
    copy.run("offset")
    copy.forget_the_last_batch()
    planned = tmp_path / "checkpoint" / "offsets" / "0"
    text = planned.read_text(encoding="utf-8")
    past_ms = int(time.time() * 1000) - 8 * 86_400_000
    planned.write_text(re.sub(r'(?<="batchTimestampMs":)\d+', str(past_ms), text))
    planned.with_name(".0.crc").unlink()
    with pytest.raises(PySparkException, match="remove offsets/0 from the checkpoint"):
        copy.run("offset")
    assert house.log_end(target) == 10
    planned.unlink()
    copy.run("offset")
    assert house.log_end(target) == 10, "the appliance has not forgotten it in truth"


class Copy:
    """A stream of one topic into another, whose rows come in an order."""

    def __init__(self, spark, house: House, source: str, target: str, checkpoint: Path) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self._reading = house.options(topics=source, group=f"of-{source}")
        self._writing = house.options(topic=target, checkpointLocation=checkpoint)

    def run(self, order: str) -> None:
        records = self._spark.readStream.format("seb").options(**self._reading).load()

        def sorted_within(parts):
            for part in parts:
                yield part.sort_values("offset", ascending=order == "offset")

        ordered = records.select("value", "offset").mapInPandas(
            sorted_within, "value binary, offset long"
        )
        query = ordered.select("value").writeStream.format("seb").options(**self._writing)
        query.trigger(availableNow=True).start().awaitTermination()

    def forget_the_last_batch(self) -> None:
        """As if the driver had died before Spark knew that the sink had everything."""
        commits = self._checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink()


def test_a_batch_with_a_producer_id_is_exact_when_it_is_run_again(spark, house, tmp_path) -> None:
    """Of a topic into another; a process dies in the middle, and the job fails."""
    source, target, count = house.name(), house.name(), 60_000
    house.produce(source, count)
    marker = tmp_path / "fail"
    marker.touch()

    @sql.udf("binary", useArrow=False)
    def fails(value: bytes) -> bytes:
        if marker.exists() and int(value) == count - 10:
            raise RuntimeError("it fails")
        return value

    def copy(order: str = "offset") -> None:
        options = house.options(topics=source, startingOffsets=0, endingOffsets=count)
        records = spark.read.format("seb").options(**options, minPartitions="3").load()
        rows = records.sortWithinPartitions(sql.expr(order)).select(fails("value").alias("value"))
        writer = rows.write.format("seb").mode("append")
        writer.options(**house.options(topic=target, producerId=f"copy-{source}")).save()

    with pytest.raises(PySparkException):
        copy()
    marker.unlink()
    assert 0 < house.log_end(target) < count
    for _ in range(2):
        copy()
        assert sorted(map(int, values(spark, house, target))) == list(range(count))
    with pytest.raises(PySparkException, match="other records for topic"):
        copy("-offset")
    assert house.log_end(target) == count


def test_spark_tells_a_sink_its_query_and_batch(spark, house, tmp_path) -> None:
    """Pitfall 13: names of Spark's inside. If they change, writes of streams are refused."""
    seen = tmp_path / "seen"

    @sql.udf("long", useArrow=False)
    def note(value: int) -> int:
        context = TaskContext.get()
        assert context is not None
        found = [context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID)]
        seen.write_text(repr(found))
        return value

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = (
        source.select(note("value"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    assert str(query.id) in seen.read_text()
    assert "'0'" in seen.read_text()


@pytest.mark.parametrize("mode", ["overwrite", "errorifexists"])
def test_a_log_is_only_appended_to(spark, house, mode) -> None:
    """Pitfall 11."""
    topic = house.name()
    house.produce(topic, 5)
    writer = numbers(spark, 5).write.format("seb").mode(mode).options(**house.options(topic=topic))
    with pytest.raises(PySparkException) as error:
        writer.save()
    assert "append" in str(error.value).lower()
    assert house.log_end(topic) == 5


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["id"], "column id"),
        (["cast(id as string) as key"], "value is missing"),
        (["cast(id as string) as value", "id as offset"], "column offset"),
        (["cast(id as string) as value"], "name the topic"),
    ],
)
def test_a_dataframe_that_holds_no_records_is_refused(spark, house, columns, said) -> None:
    with pytest.raises(PySparkException) as error:
        append(spark.range(3).selectExpr(*columns), house)
    assert said in str(error.value)


def test_a_record_that_is_too_large_is_refused_with_the_reason(spark, house) -> None:
    frame = spark.range(1).select(sql.repeat(sql.lit("x"), 2_000_000).alias("value"))
    with pytest.raises(PySparkException) as error:
        append(frame, house, house.name())
    assert "record_too_large" in str(error.value)

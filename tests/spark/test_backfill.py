"""The job backfill: Parquet files become records, once, in their order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark_seb.errors import BadOptionError

from tests.spark.conftest import House
from tests.spark.jobs import run, stopped_before_each_step

BEGIN = datetime(2026, 1, 2, tzinfo=UTC)


def write(path: Path, numbers: range) -> None:
    path.parent.mkdir(exist_ok=True)
    columns = {
        "key": [b"key-%d" % (n % 7) if n % 5 else None for n in numbers],
        "value": [b"%d" % n if n % 11 or n % 5 == 0 else None for n in numbers],
        "headers": [[("n", b"%d" % n)] for n in numbers],
        "timestamp": [BEGIN + timedelta(seconds=n) for n in numbers],
        "other": list(numbers),
    }
    schema = pa.schema(
        {
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": pa.map_(pa.string(), pa.binary()),
            "timestamp": pa.timestamp("us", "UTC"),
            "other": pa.int64(),
        }
    )
    parquet.write_table(pa.table(columns, schema), path, row_group_size=1_000)


def records_of(spark, house: House, topic: str) -> list[tuple]:
    read = spark.read.format("seb").options(**house.options(topics=topic)).load()
    return [
        (row.key, row.value, dict(row.headers or {}), row.timestamp.replace(tzinfo=UTC))
        for row in read.orderBy("offset").collect()
    ]


def wanted(numbers: range) -> list[tuple]:
    return [
        (
            b"key-%d" % (n % 7) if n % 5 else None,
            b"%d" % n if n % 11 or n % 5 == 0 else None,
            {"n": b"%d" % n},
            BEGIN + timedelta(seconds=n),
        )
        for n in numbers
    ]


def test_a_backfill_keeps_keys_values_headers_and_times_and_stores_nothing_twice(
    spark, house, tmp_path
) -> None:
    """It is stopped before each step, run to its end, and run once more."""
    topic, files = house.name(), tmp_path / "in"
    write(files / "b.parquet", range(3_000, 5_000))
    write(files / "a.parquet", range(3_000))
    asked = ["--in", files, "--to-topic", topic]
    assert run(spark, house, "backfill", *asked, "--dry-run").figures == {"records": 5_000}
    assert not house.exists(topic)

    def attempt(_: int, progress) -> None:
        run(spark, house, "backfill", *asked, progress=progress)

    assert stopped_before_each_step(attempt) == 2
    run(spark, house, "backfill", *asked)
    assert records_of(spark, house, topic) == wanted(range(5_000))


def test_other_files_under_the_same_arguments_are_refused(spark, house, tmp_path) -> None:
    topic, files = house.name(), tmp_path / "in"
    write(files / "a.parquet", range(10))
    asked = ["--in", files, "--to-topic", topic]
    run(spark, house, "backfill", *asked)
    write(files / "b.parquet", range(10, 20))
    with pytest.raises(PySparkException, match="other records"):
        run(spark, house, "backfill", *asked)
    assert house.log_end(topic) == 10


def test_columns_become_records_by_expressions_and_in_an_order(spark, house, tmp_path) -> None:
    topic, files = house.name(), tmp_path / "in"
    write(files / "a.parquet", range(1, 4))
    with pytest.raises(BadOptionError, match="no column value"):
        run(spark, house, "backfill", "--in", files, "--to-topic", topic, "--select", "key")
    expressions = [
        "CAST(other AS STRING) AS key",
        "to_json(struct(other, value)) AS value",
        "timestamp",
    ]
    asked = ["--in", files, "--to-topic", topic, "--order-by", "0 - other"]
    run(spark, house, "backfill", *asked, "--select", *expressions)
    found = records_of(spark, house, topic)
    assert [row[:2] for row in found] == [
        (b"3", b'{"other":3,"value":"Mw=="}'),
        (b"2", b'{"other":2,"value":"Mg=="}'),
        (b"1", b'{"other":1,"value":"MQ=="}'),
    ]
    assert [row[3] for row in found] == [BEGIN + timedelta(seconds=n) for n in (3, 2, 1)]

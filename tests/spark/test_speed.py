"""How much processor time reads take, beside what Spark takes for the same rows alone."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from seb_appliance.formats import arrow, batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from tests.spark.conftest import House
from tests.support.process_tree import Spent, cpu_s

pytestmark = pytest.mark.measured
RECORDS = 100_000
ROUNDS = 3
# Of the processor time that the same rows take as Parquet.
DIRECT_MIN = 0.55
API_MIN = 0.5


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def parts_of_the_last(
    spark: SparkSession, house: House, works: dict[str, Callable[[], None]]
) -> dict[str, float]:
    """Processor time of Spark, its workers and the appliance, in turns: what the last one takes, of
    what each takes."""
    jvm = spark.sparkContext._gateway.proc.pid
    workers = Spent(jvm)

    def now_s() -> float:
        return workers.now_s() + cpu_s(jvm) + cpu_s(house.seb.process.pid)

    took: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(ROUNDS + 1):
        for name, work in works.items():
            before_s = now_s()
            work()
            if turn:  # the first is a warm run
                took[name].append(now_s() - before_s)
    last = took[next(reversed(works))]
    return {
        name: statistics.median(a / b for a, b in zip(last, ours, strict=True))
        for name, ours in took.items()
    }


def test_rows_cost_little_more_than_those_of_parquet(spark, house: House, tmp_path: Path) -> None:
    topic, lake = house.name(), str(tmp_path / "lake")
    house.produce(topic, RECORDS, size=100, keys=1_000)
    house.tidied(topic)

    def read(transport: str) -> DataFrame:
        options = house.options(topics=topic, transport=transport, minPartitions=2)
        return spark.read.format("seb").options(**options).load()

    read("api").write.parquet(lake)
    found = parts_of_the_last(
        spark,
        house,
        {
            "direct": lambda: noop(read("direct")),
            "api": lambda: noop(read("api")),
            "Parquet": lambda: noop(spark.read.parquet(lake)),
        },
    )
    assert found["direct"] >= DIRECT_MIN, found
    assert found["api"] >= API_MIN, found


def test_batches_are_decoded_for_arrow_in_less_time_than_item_by_item() -> None:
    noise = [os.urandom(30).hex().encode() + b"-" * 40 for _ in range(10_000)]
    columns = Columns(int64s(range(10_000)), BinaryColumn.of(noise), BinaryColumn.of(noise))
    data = batch.encode(columns, base_offset=0, created_us=1, zstd_level=1)
    header = batch.read_header(data)

    def cost_s(decode: Callable[[], object]) -> float:
        best_s = float("inf")
        for _ in range(10):
            before_s = time.process_time()
            for _ in range(10):
                decode()
            best_s = min(best_s, time.process_time() - before_s)
        return best_s

    plain_s = cost_s(lambda: batch.decode(data, 0, header))
    assert cost_s(lambda: arrow.decode(data, 0, header)) < 0.7 * plain_s

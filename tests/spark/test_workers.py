"""Spark's workers: which Python they run, what they must find there, and what becomes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import functions as sql
from pyspark.sql.types import StructType
from pyspark_seb.options import read_options
from pyspark_seb.reading.ranges import RangePartition, read_partition

from tests.spark.conftest import ENVIRONMENT, ROOT, House
from tests.spark.test_direct import SCHEMA, numbers, whole

READS = """
import sys
from pyspark.sql import SparkSession
from pyspark_seb import DefaultSource

url, token_file, topic = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "512m")
small = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
builder = builder.config("spark.driver.extraJavaOptions", small)
spark = builder.getOrCreate()
spark.dataSource.register(DefaultSource)
spark.read.format("seb").options(url=url, tokenFile=token_file, topics=topic).load().count()
"""


def test_workers_run_python3_of_the_path_and_say_what_they_miss(house, tmp_path: Path) -> None:
    """Pitfalls 14 and 15: PYSPARK_PYTHON is not set, and that Python has no pyspark_seb."""
    topic = house.name()
    house.produce(topic, 1)
    marker, python = tmp_path / "was run", tmp_path / "python3"
    missing = tmp_path / "hidden" / "pyspark_seb"  # ours is installed with the tests
    missing.mkdir(parents=True)
    found = "raise ModuleNotFoundError(\"No module named 'pyspark_seb'\")\n"
    (missing / "__init__.py").write_text(found)
    runs = f'exec env PYTHONPATH="{missing.parent}" "{sys.executable}" "$@"'
    python.write_text(f'#!/bin/sh\n: > "{marker}"\n{runs}\n')
    python.chmod(0o755)
    environment = {**os.environ, **ENVIRONMENT, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        del environment[name]
    shown = subprocess.run(
        [sys.executable, "-c", READS, house.url, house.token_file, topic],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert marker.exists()
    assert shown.returncode != 0
    assert "ModuleNotFoundError: No module named 'pyspark_seb'" in shown.stdout + shown.stderr
    documented = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    assert "`ModuleNotFoundError: pyspark_seb` in a task" in documented


def test_a_task_gives_nothing_but_arrow_batches(spark, house: House) -> None:
    """Pitfall 16: of anything else Spark says DATA_SOURCE_INVALID_RETURN_TYPE."""
    topic = house.name()
    house.produce(topic, 10)
    options = read_options(house.options(topics=topic, includeHeaders="false"))
    schema = StructType.fromDDL(
        "key binary, value binary, topic string not null, offset long not null, "
        "timestamp timestamp not null"
    )
    batches = list(read_partition(options, RangePartition(whole(house, topic)), schema))
    assert all(batch.schema.equals(SCHEMA) for batch in batches)
    assert numbers(batches) == list(range(10))


def test_a_worker_collects_no_garbage_among_what_was_imported(spark) -> None:
    """It collects after each task, which is a third of its time otherwise."""

    @sql.udf("long", useArrow=False)
    def exempt(_: int) -> int:
        import gc

        import pyspark_seb

        assert pyspark_seb.DefaultSource.name() == "seb"
        return gc.get_freeze_count()

    assert spark.range(1).select(exempt("id")).first()[0] > 10_000


def test_a_task_whose_process_dies_is_done_again(spark, house, tmp_path: Path) -> None:
    """Pitfall 16: in the middle of a read."""
    topic, count = house.name(), 40_000
    house.produce(topic, count)
    marker = tmp_path / "was killed"

    @sql.udf("long", useArrow=False)
    def dies_once(offset: int) -> int:
        if offset == count - 10_000 and not marker.exists():
            marker.touch()
            os._exit(1)
        return offset

    given = house.options(topics=topic, minPartitions=2)
    records = spark.read.format("seb").options(**given).load()
    rows = records.select(dies_once("offset").alias("offset")).collect()
    assert marker.exists()
    assert sorted(row.offset for row in rows) == list(range(count))

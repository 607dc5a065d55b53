"""The jobs, run in the session of the tests, and stopped before each of their steps."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
from pyspark.sql import SparkSession
from pyspark_seb.jobs.__main__ import names
from pyspark_seb.jobs.frame import Job, Progress, Result, Run

from tests.spark.conftest import House

NAMES = sorted(names())


def job(name: str) -> Job:
    found = importlib.import_module(f"pyspark_seb.jobs.{name}").JOB
    assert isinstance(found, Job)
    return found


def given(house: House, *more: object) -> list[str]:
    return ["--url", house.url, "--token-file", house.token_file, *map(str, more)]


def run(
    spark: SparkSession,
    house: House,
    name: str,
    *more: object,
    progress: Progress = lambda _: None,
) -> Result:
    asked = job(name).parser().parse_args(given(house, *more))
    return job(name).work(Run(asked, spark, progress))


class Stopped(BaseException):
    """What a test throws into a job, in place of a kill."""


def stopped_before_each_step(attempt: Callable[[int, Progress], object]) -> int:
    """How many steps there are. `attempt`: gets its number, and runs the job anew with what stops
    it before the step of that number; it raises Stopped on as the job does."""
    for number in itertools.count():
        left = number

        def progress(line: str) -> None:
            nonlocal left
            if line.startswith("Spark: "):  # from time to time, out of turn
                return
            if left == 0:
                raise Stopped(line)
            left -= 1

        try:
            attempt(number, progress)
        except Stopped:
            continue
        return number
    raise AssertionError


def offsets_seen(spark: SparkSession, folder: Path, pattern: str = "**/*.parquet") -> list[int]:
    """The offsets that DuckDB, Polars and Spark see: all of them the same."""
    files = f"{folder}/{pattern}"
    if not list(folder.glob(pattern)):
        return []
    rows = duckdb.sql(f"select \"offset\" from read_parquet('{files}')").fetchall()
    frame = polars.scan_parquet(files).select("offset").collect()
    found = sorted(row[0] for row in rows)
    assert sorted(frame["offset"].to_list()) == found
    by_spark = spark.read.parquet(str(folder)).select("offset").collect()
    assert sorted(row.offset for row in by_spark) == found
    return found

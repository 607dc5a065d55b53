"""The jobs, in the session of the tests or as processes, and ended before each of their steps."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
from pyspark.sql import SparkSession
from pyspark_seb.jobs.__main__ import names
from pyspark_seb.jobs.frame import Job, Progress, Result, Run

from tests.spark.conftest import ENVIRONMENT, House

NAMES = sorted(names())
PATIENCE_S = 300.0  # Spark starts in seconds, and much later on a busy machine

# Runs a job whose process is killed at a place: argv is what is patched, at which call, the module.
KILLED = """
import importlib, os, runpy, signal, sys
module, name, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
owner = importlib.import_module(module)
*path, name = name.split(".")
for part in path:
    owner = getattr(owner, part)
real = getattr(owner, name)
def dies(*given, **named):
    global calls
    calls -= not str(given[-1]).startswith("Spark: ")  # progress that comes out of turn
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)
setattr(owner, name, dies)
del sys.argv[:4]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


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


def command(house: House, name: str, *more: object, before: tuple[str, ...] = ("-m",)) -> list[str]:
    return [sys.executable, *before, f"pyspark_seb.jobs.{name}", *given(house, *more)]


def environment() -> dict[str, str]:
    """Spark's own: one core, so that two sessions fit on a machine."""
    return {
        **os.environ,
        **ENVIRONMENT,
        "PYSPARK_SUBMIT_ARGS": "--master local[1] --driver-memory 1g "
        "--conf spark.ui.enabled=false "
        "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell",
    }


def run_as_process(
    house: House, name: str, *more: object, before: tuple[str, ...] = ("-m",)
) -> int:
    """The exit code; -9 when it was killed."""
    done = subprocess.run(
        command(house, name, *more, before=before),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(),
    )
    assert done.returncode in {0, -9}, done.stderr[-3000:]
    return done.returncode


def is_killed_before_step(house: House, number: int, name: str, *more: object) -> bool:
    """Whether the job has so many steps, counted from 1; otherwise it has come to its end."""
    lines = ("-c", KILLED, "pyspark_seb.jobs.frame", "_Lines.__call__", str(number))
    return run_as_process(house, name, *more, before=lines) == -9


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

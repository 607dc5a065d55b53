"""Other engines read each record of a lake once, whenever the job that writes it is killed.

Only a job that is killed needs a process and a JVM, which take seconds to start. The runs after the
kill use the session of the other tests, except one of each job."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
import pytest
from pyspark.sql import SparkSession
from pyspark_seb.errors import LakeError

from tests.spark.conftest import ENVIRONMENT, House
from tests.spark.test_jobs import JOBS, job

PATIENCE_S = 300.0  # Spark starts in seconds, and much later on a busy machine
DAYS = 3
EVERY_S = 100  # seconds between the records of a topic that spans days
OF_DAYS = DAYS * 86_400 // EVERY_S

# Runs a job whose process is killed at a place: argv is what is patched, at which call, the job.
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
    calls -= 1
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)
setattr(owner, name, dies)
del sys.argv[:4]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Job:
    """One of the jobs, in the session of the tests or as a process of its own."""

    def __init__(
        self, spark: SparkSession, house: House, name: str, topic: str, out: Path, *more: object
    ) -> None:
        self.out = out
        self._spark, self._module = spark, job(name)
        self._arguments = ["--url", house.url, "--token-file", house.token_file]
        self._arguments += ["--topics", topic, "--group", f"of-{topic}"]
        self._arguments += ["--out", str(out), *map(str, more)]
        self._command = [str(JOBS / f"{name}.py"), *self._arguments]
        # It finds Spark's own environment: one core, so that two sessions fit on a machine.
        self._environment = {**os.environ, **ENVIRONMENT}
        self._environment["PYSPARK_SUBMIT_ARGS"] = (
            "--master local[1] --driver-memory 1g --conf spark.ui.enabled=false "
            "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
        )

    def run(self, *more: str) -> None:
        asked = self._module.arguments().parse_args([*self._arguments, *more])
        self._module.run(self._spark, asked)

    def run_as_process(self, *before: str, expected: int = 0) -> None:
        done = subprocess.run(
            [sys.executable, *before, *self._command],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=self._environment,
        )
        assert done.returncode == expected, done.stderr[-3000:]

    def killed_at(self, module: str, name: str, calls: int = 1) -> None:
        self.run_as_process("-c", KILLED, module, name, str(calls), expected=-9)

    def killed_when(self, seen: Callable[[], object]) -> None:
        process = subprocess.Popen(
            [sys.executable, *self._command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )
        until_s = time.monotonic() + PATIENCE_S
        try:
            while not seen():
                assert process.poll() is None, "it ended before it was killed"
                assert time.monotonic() < until_s
                time.sleep(0.005)  # Spark needs the processor
        finally:
            os.killpg(process.pid, 9)  # with its JVM, which would write on
            process.wait()

    def read(self) -> list[int]:
        """The offsets that other engines see. They read every file that looks like Parquet."""
        if not list(self.out.rglob("*.parquet")):
            return []
        files = f"{self.out}/**/*.parquet"
        rows = duckdb.sql(f"select \"offset\" from read_parquet('{files}')").fetchall()
        frame = polars.scan_parquet(files).select("offset").collect()
        found = sorted(row[0] for row in rows)
        assert sorted(frame["offset"].to_list()) == found
        return found


def written_below(folder: Path) -> Callable[[], bool]:
    def seen() -> bool:
        return any(name.endswith(".parquet") for _, _, names in os.walk(folder) for name in names)

    return seen


def assert_only_these(found: list[int], offsets: range) -> None:
    """Each once, perhaps not all."""
    assert len(found) == len(set(found))
    assert set(found) <= set(offsets)


@pytest.mark.parametrize("name", ["pull_committed", "stream_to_parquet"])
def test_a_job_that_is_killed_while_spark_writes_leaves_nothing_half_written(
    spark, house, tmp_path, name
) -> None:
    topic = house.name()
    house.produce(topic, 60_000)
    of_stream = ["--once", "--checkpoint", tmp_path / "checkpoint"]
    more = of_stream if name == "stream_to_parquet" else []
    job = Job(spark, house, name, topic, tmp_path / "lake", *more)
    job.killed_when(written_below(tmp_path))
    assert_only_these(job.read(), range(60_000))
    house.produce(topic, 1_000)
    job.run_as_process()
    job.run()
    assert job.read() == list(range(61_000))
    assert house.committed(f"of-{topic}", topic) == 61_000
    left = [path for path in tmp_path.rglob("*") if "staging" in path.name or ".tmp" in path.name]
    assert left == []


def test_a_job_that_is_killed_between_two_renames_is_finished_by_the_next(
    spark, house, tmp_path
) -> None:
    topic = house.name()
    house.produce(topic, OF_DAYS, every_s=EVERY_S)
    job = Job(spark, house, "pull_committed", topic, tmp_path / "lake")
    job.killed_at("pathlib", "Path.rename", 3)
    found = job.read()
    assert 0 < len(found) < OF_DAYS
    assert_only_these(found, range(OF_DAYS))
    job.run()
    assert job.read() == list(range(OF_DAYS))
    assert [path.name for path in tmp_path.glob(".lake.unfinished/*/*")] != []
    job.run()
    assert list(tmp_path.glob(".lake.unfinished/*/*")) == []


def test_records_that_are_lost_after_a_kill_are_neither_doubled_nor_taken_back(
    spark, house, tmp_path
) -> None:
    topic = house.name()
    house.produce(topic, 2_000)
    job = Job(spark, house, "pull_committed", topic, tmp_path / "lake")
    job.killed_at("pyspark_seb.stream_reader", "finish")
    house.trim(topic, 500)
    house.produce(topic, 1_000)
    for _ in range(2):
        job.run("--skip-lost")
    assert job.read() == list(range(3_000))


def test_records_that_were_lost_at_first_are_not_doubled_by_the_next_run(
    spark, house, tmp_path
) -> None:
    topic = house.name()
    house.produce(topic, 2_000)
    house.commit(f"of-{topic}", topic, 100)
    house.trim(topic, 500)
    job = Job(spark, house, "pull_committed", topic, tmp_path / "lake", "--skip-lost")
    job.killed_at("pyspark_seb.stream_reader", "finish")
    house.trim(topic, 700)
    job.run()
    assert job.read() == list(range(500, 2_000))


def test_a_new_checkpoint_loses_and_doubles_nothing(spark, house, tmp_path) -> None:
    topic = house.name()
    house.produce(topic, 1_000)
    for number in range(2):
        of_stream = ["--once", "--checkpoint", tmp_path / f"checkpoint-{number}"]
        Job(spark, house, "stream_to_parquet", topic, tmp_path / "lake", *of_stream).run()
        house.produce(topic, 500)
    of_stream = ["--once", "--checkpoint", tmp_path / "checkpoint-2"]
    job = Job(spark, house, "stream_to_parquet", topic, tmp_path / "lake", *of_stream)
    job.run()
    assert job.read() == list(range(2_000))
    assert house.committed(f"of-{topic}", topic) == 2_000


def test_a_folder_where_records_would_be_twice_or_unseen_is_refused(spark, house, tmp_path) -> None:
    topic, out = house.name(), tmp_path / "lake"
    house.produce(topic, 100)
    job = Job(spark, house, "pull_committed", topic, out)
    job.run()
    house.appliance.request("DELETE", f"/v1/groups/of-{topic}")
    for _ in range(2):
        with pytest.raises(LakeError, match="holds some of the offsets 0 to 100"):
            job.run()
    (out / "_spark_metadata").mkdir()
    with pytest.raises(LakeError, match="_spark_metadata"):
        job.run()
    assert job.read() == list(range(100))

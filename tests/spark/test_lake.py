"""Other engines read each record of a lake once, whenever the job that writes it is killed.

Only a job that is killed needs a process and a JVM, which take seconds to start. The runs after the
kill use the session of the other tests, except one of each job; so do runs that a test stops where
the job cleans nothing up."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark_seb.errors import LakeError
from pyspark_seb.jobs.frame import Progress, Result
from pyspark_seb.jobs.steps import pulling

from tests.spark.conftest import START_US, House
from tests.spark.jobs import (
    KILLED,
    PATIENCE_S,
    Stopped,
    command,
    environment,
    offsets_seen,
    run,
    run_as_process,
    stopped_before_each_step,
)

DAYS = 2
EVERY_S = 100  # seconds between the records of a topic that spans days
OF_DAYS = DAYS * 86_400 // EVERY_S


class Job:
    """One of the jobs, in the session of the tests or as a process of its own."""

    def __init__(
        self, spark: SparkSession, house: House, name: str, topic: str, out: Path, *more: object
    ) -> None:
        self.out = out
        self._spark, self._house, self._name = spark, house, name
        self._arguments = ["--topics", topic, "--group", f"of-{topic}", "--out", out, *more]

    def run(self, *more: object, progress: Progress = lambda _: None) -> Result:
        all_of = [*self._arguments, *more]
        return run(self._spark, self._house, self._name, *all_of, progress=progress)

    def run_as_process(self) -> None:
        assert run_as_process(self._house, self._name, *self._arguments) == 0

    def killed_at(self, module: str, name: str, calls: int) -> None:
        before = ("-c", KILLED, module, name, str(calls))
        assert run_as_process(self._house, self._name, *self._arguments, before=before) == -9

    def stopped_before_it_commits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On its way out it closes its connections, and touches no file and no offset."""

        def stop(*_: object) -> None:
            raise Stopped

        with monkeypatch.context() as patched:
            patched.setattr(pulling, "finish", stop)
            with pytest.raises(Stopped):
                self.run()

    def killed_when(self, seen: Callable[[], object]) -> None:
        process = subprocess.Popen(
            command(self._house, self._name, *self._arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
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
        return offsets_seen(self._spark, self.out)


def written_below(folder: Path) -> Callable[[], bool]:
    def seen() -> bool:
        return any(name.endswith(".parquet") for _, _, names in os.walk(folder) for name in names)

    return seen


def assert_only_these(found: list[int], offsets: range) -> None:
    """Each once, perhaps not all."""
    assert len(found) == len(set(found))
    assert set(found) <= set(offsets)


def test_a_job_that_is_killed_while_spark_writes_leaves_nothing_half_written(
    spark, house, tmp_path
) -> None:
    topic = house.name()
    house.produce(topic, 60_000)
    job = Job(spark, house, "pull", topic, tmp_path / "lake")
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
    job = Job(spark, house, "pull", topic, tmp_path / "lake")
    job.killed_at("pathlib", "Path.rename", 3)
    found = job.read()
    assert 0 < len(found) < OF_DAYS
    assert_only_these(found, range(OF_DAYS))
    job.run()
    assert job.read() == list(range(OF_DAYS))
    assert [path.name for path in tmp_path.glob(".lake.unfinished/*/*")] != []
    job.run()
    assert list(tmp_path.glob(".lake.unfinished/*/*")) == []


def test_records_that_are_lost_after_a_stop_are_neither_doubled_nor_taken_back(
    spark, house, tmp_path, monkeypatch
) -> None:
    topic = house.name()
    house.produce(topic, 2_000)
    job = Job(spark, house, "pull", topic, tmp_path / "lake")
    job.stopped_before_it_commits(monkeypatch)
    house.trim(topic, 500)
    house.produce(topic, 1_000)
    for _ in range(2):
        job.run("--skip-lost")
    assert job.read() == list(range(3_000))


def test_records_that_were_lost_at_first_are_not_doubled_by_the_next_run(
    spark, house, tmp_path, monkeypatch
) -> None:
    topic = house.name()
    house.produce(topic, 2_000)
    house.commit(f"of-{topic}", topic, 100)
    house.trim(topic, 500)
    job = Job(spark, house, "pull", topic, tmp_path / "lake", "--skip-lost")
    job.stopped_before_it_commits(monkeypatch)
    house.trim(topic, 700)
    job.run()
    assert job.read() == list(range(500, 2_000))


def test_a_pull_that_is_stopped_before_each_step_is_finished_by_the_next(
    spark, house, tmp_path
) -> None:
    topic = house.name()
    house.produce(topic, OF_DAYS, every_s=EVERY_S)

    def attempt(number: int, progress: Progress) -> None:
        house.produce(topic, 10)
        out = tmp_path / f"{number}" / "lake"
        job = Job(spark, house, "pull", topic, out, "--group", house.name("group"))
        assert job.run("--dry-run").figures["offsets"] == house.log_end(topic)
        assert not out.exists()
        end = house.log_end(topic)
        try:
            job.run(progress=progress)
        except Stopped:
            assert_only_these(job.read(), range(end))
            house.produce(topic, 10)
            for _ in range(3):  # it finishes that range, pulls the rest, has nothing to do
                job.run()
            assert job.read() == list(range(house.log_end(topic)))
            assert list(out.parent.glob(".lake.unfinished/*/*")) == []
            raise

    assert stopped_before_each_step(attempt) == 3 + DAYS + 1  # it begins at noon


def test_times_in_the_lake_are_whole_numbers_with_bounds(spark, house, tmp_path) -> None:
    """Spark's default, INT96, has none: an engine that looks for a time would read every file."""
    topic = house.name()
    house.produce(topic, 100)
    Job(spark, house, "pull", topic, tmp_path / "lake").run()
    (path,) = (tmp_path / "lake").rglob("*.parquet")
    group = parquet.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    (column,) = [one for one in columns if one.path_in_schema == "timestamp"]
    assert column.physical_type == "INT64"
    assert column.statistics.min.timestamp() == START_US / 1e6
    assert column.statistics.max.timestamp() == START_US / 1e6 + 99


def test_values_are_typed_columns_and_what_does_not_fit_is_in_the_dead_letters(
    spark, house, tmp_path
) -> None:
    topic, dead = house.name(), tmp_path / "dead"
    values = ['{"total": 1.5, "at": "2026-01-02T03:04:05Z"}', '{"total": "x"}', "no JSON", None]
    records = [{"key": "k", "value": value} for value in values]
    columns = ["--columns", "total:double, at:timestamp", "--dead-letters", dead]

    def attempt(number: int, progress: Progress) -> None:
        house.appliance.send("POST", f"/v1/topics/{topic}/records", {"records": records})
        job = Job(spark, house, "pull", topic, tmp_path / "lake", *columns)
        try:
            job.run(progress=progress)
        except Stopped:
            job.run()
            raise

    assert stopped_before_each_step(attempt) == 5
    good = duckdb.sql(f"""select total, epoch("at"), key, topic, _error from
        '{tmp_path}/lake/**/*.parquet' order by "offset" limit 2""").fetchall()
    assert [row[0] for row in good] == [1.5, None]
    assert good[0][1] == 1767323045
    assert good[0][2:] == ("k", topic, None)
    bad = duckdb.sql(f"select _raw, _error from '{dead}/**/*.parquet' order by \"offset\"")
    first, second = bad.fetchall()[:2]
    assert first == (b'{"total": "x"}', "column total: $.total is not a finite number")
    assert second[0] == b"no JSON"
    assert "JSON" in second[1]
    all_of = [*offsets_seen(spark, tmp_path / "lake"), *offsets_seen(spark, dead)]
    assert sorted(all_of) == list(range(house.log_end(topic)))
    assert (
        spark.read.parquet(str(tmp_path / "lake")).schema["total"].dataType.typeName() == "double"
    )


def test_a_folder_where_records_would_be_twice_or_unseen_is_refused(spark, house, tmp_path) -> None:
    topic, out = house.name(), tmp_path / "lake"
    house.produce(topic, 100)
    job = Job(spark, house, "pull", topic, out)
    job.run()
    house.appliance.request("DELETE", f"/v1/groups/of-{topic}")
    for _ in range(2):
        with pytest.raises(LakeError, match="holds some of the offsets 0 to 100"):
            job.run()
    assert job.read() == list(range(100))
    (out / "_spark_metadata").mkdir()
    with pytest.raises(LakeError, match="_spark_metadata"):
        job.run()

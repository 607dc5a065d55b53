"""The jobs, as spark-submit runs them. Those that write a lake, and killed ones, are in
test_lake.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import functions as sql
from pyspark_seb.errors import ApplianceError
from pyspark_seb.jobs.steps import pulling
from pyspark_seb.options import read_options

from tests.spark.conftest import ENVIRONMENT, ROOT, House
from tests.spark.jobs import NAMES, given, job, run, stopped_before_each_step


def lake(spark, path: Path) -> dict[str, list[int]]:
    """The offsets in it, by topic."""
    found: dict[str, list[int]] = {}
    for row in spark.read.parquet(str(path)).select("topic", "offset").collect():
        found.setdefault(row.topic, []).append(row.offset)
    return {topic: sorted(offsets) for topic, offsets in found.items()}


def shown(*command: object) -> str:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **ENVIRONMENT},
    ).stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_job_says_what_it_takes(name: str) -> None:
    said = shown("-m", f"pyspark_seb.jobs.{name}", "--help")
    for option in ("--token-file", "--dry-run", "--json", "--retries", "Exit codes"):
        assert option in said
    assert "spark-submit" in said


def test_the_jobs_are_listed_and_run_by_the_path_of_their_files() -> None:
    *listed, folder = shown("-m", "pyspark_seb.jobs").splitlines()
    assert [line.split()[0] for line in listed] == NAMES
    assert shown("-m", "pyspark_seb.jobs", "--folder").strip() == folder
    assert "spark-submit" in shown(Path(folder, "pull.py"), "--help")
    assert "spark-submit" in shown(ROOT / "spark" / "jobs" / "pull_committed.py", "--help")


def test_an_error_is_a_sentence_and_an_exit_code(spark, house, tmp_path, capsys) -> None:
    """Of the driver and of a task; as text and as JSON."""
    (tmp_path / "lake").touch()
    asked = ["--topics", "no.such", "--group", "g", "--out", tmp_path / "lake"]
    assert job("pull").main(given(house, *asked), spark) == 1
    said = capsys.readouterr()
    assert "failed (topic_not_found): GET /v1/topics/no.such" in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    topic = house.name()
    house.produce(topic, 10)
    asked = ["--in", tmp_path / "in", "--from-topic", topic, "--to-topic", "a//b", "--json"]
    rows = spark.range(3).selectExpr(
        f"'{topic}' AS topic", "id AS offset", "cast(id AS string) AS value"
    )
    rows.write.parquet(str(tmp_path / "in"))
    assert job("replay").main(given(house, *asked), spark) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["exit_code"]) == ("replay", 1)
    assert found["error"] == "BadOptionError"
    assert found["message"].startswith("topic='a//b' is no name")


def test_a_job_is_tried_again_while_the_appliance_is_unavailable(
    spark, house, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("pyspark_seb.jobs.frame._PAUSE_S", 0.0)
    topic, lines = house.name(), []
    house.produce(topic, 10)
    real = pulling.finish

    def fails_once(*all_of: object) -> None:
        monkeypatch.setattr(pulling, "finish", real)
        raise ApplianceError("PUT", 503, "not_ready", "it starts", {})

    monkeypatch.setattr(pulling, "finish", fails_once)
    asked = ["--topics", topic, "--group", f"of-{topic}", "--out", tmp_path / "lake"]
    assert job("pull").main(given(house, *asked), spark, lines.append) == 0
    assert sum("trying again" in line for line in lines) == 1
    assert lake(spark, tmp_path / "lake") == {topic: list(range(10))}
    monkeypatch.setattr(pulling, "finish", fails_once)
    house.produce(topic, 10)
    assert job("pull").main(given(house, *asked, "--retries", 0), spark) == 1


def test_of_two_pulls_at_once_one_commits(spark, house, tmp_path, monkeypatch, capsys) -> None:
    topic, group = house.name(), house.name("group")
    house.produce(topic, 10)
    asked = given(house, "--topics", topic, "--group", group, "--out", tmp_path / "lake")
    options = read_options({**house.options(topics=topic, group=group)})
    slower = pulling.begin(house.appliance, options, None)
    assert job("pull").main(asked, spark) == 0
    with pytest.raises(ApplianceError, match="offset_conflict"):
        pulling.finish(house.appliance, group, slower)
    house.produce(topic, 10)
    monkeypatch.setattr(pulling, "begin", lambda *_, **__: slower)
    assert job("pull").main(asked, spark) == 3
    assert "another run was quicker" in capsys.readouterr().err


def records_of(spark, house: House, topic: str) -> list:
    found = spark.read.format("seb").options(**house.options(topics=topic)).load()
    return sorted(found.select("offset", "key", "value", "timestamp").collect())


def test_a_replay_that_is_stopped_before_each_step_stores_nothing_twice(
    spark, house, tmp_path
) -> None:
    topic, again = house.name(), house.name()
    house.produce(topic, 3_000, keys=5)
    asked = ["--topics", topic, "--group", f"of-{topic}", "--out", tmp_path / "lake"]
    for _ in range(2):
        run(spark, house, "pull", *asked, "--max-records", 2_000)
    asked = ["--in", tmp_path / "lake", "--from-topic", topic, "--to-topic", again]
    assert run(spark, house, "replay", *asked, "--dry-run").figures["records"] == 3_000
    assert not house.exists(again)

    def attempt(_: int, progress) -> None:
        run(spark, house, "replay", *asked, progress=progress)

    assert stopped_before_each_step(attempt) == 2
    run(spark, house, "replay", *asked)
    assert records_of(spark, house, again) == records_of(spark, house, topic)


def test_key_history_has_each_version_of_each_key(spark, house, tmp_path) -> None:
    topic = house.name()
    for key, value in [("a", "1"), ("b", "1"), ("a", "2"), ("b", None)]:
        record = {"key": key, "value": value}
        path = f"/v1/topics/{topic}/records"
        house.appliance.send("POST", path, {"records": [record]})
    asked = ["--topics", topic, "--out", tmp_path / "table"]
    run(spark, house, "key_history", *asked)
    table = spark.read.parquet(str(tmp_path / "table")).orderBy("offset")
    rows = table.withColumn("key", sql.col("key").cast("string")).collect()
    assert [(row.key, row.is_current, row.is_deleted) for row in rows] == [
        ("a", False, False),
        ("b", False, False),
        ("a", True, False),
        ("b", True, True),
    ]
    assert rows[0].valid_to == rows[2].valid_from
    assert rows[2].valid_to is None


def test_a_history_that_is_stopped_before_each_step_is_the_old_one_or_the_new_one(
    spark, house, tmp_path
) -> None:
    topic, out = house.name(), tmp_path / "table"
    house.produce(topic, 100, keys=10)
    asked = ["--topics", topic, "--out", out]
    run(spark, house, "key_history", *asked)
    house.produce(topic, 50, keys=10)

    def seen() -> int:
        ((count,),) = duckdb.sql(f"select count(*) from '{out}/**/*.parquet'").fetchall()
        assert spark.read.parquet(str(out)).count() == count
        return count

    def attempt(_: int, progress) -> None:
        assert seen() == 100
        run(spark, house, "key_history", *asked, progress=progress)

    assert stopped_before_each_step(attempt) == 3
    assert seen() == 150
    assert list(tmp_path.glob(".*.unfinished")) != [] == list(tmp_path.glob(".*.unfinished/*"))


def test_the_lag_report_has_a_row_for_each_topic_of_each_group(
    spark, house, tmp_path, capsys
) -> None:
    topic, group, out = house.name(), house.name("group"), tmp_path / "lag"
    house.produce(topic, 10)
    house.commit(group, topic, 4)
    assert job("lag_report").main(given(house, "--max-records", 5, "--json")) == 4
    (row,) = [row for row in json.loads(capsys.readouterr().out)["groups"] if row["group"] == group]
    assert (row["topic"], row["committed_offset"], row["lag_records"]) == (topic, 4, 6)

    def attempt(_: int, progress) -> None:
        assert not list(out.rglob("*.parquet"))
        run(spark, house, "lag_report", "--out", out, progress=progress)

    assert stopped_before_each_step(attempt) == 3
    table = spark.read.parquet(str(out)).where(sql.col("group") == group)
    assert [row.lag_records for row in table.collect()] == [6]


def test_the_example_of_the_documentation_runs(spark, house, capsys) -> None:
    house.produce("orders.eu", 3)
    doc = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    block = re.search(r"^    records = \(\n(?:    .*\n)+", doc, re.MULTILINE)
    assert block is not None
    code = textwrap.dedent(block[0]).replace("http://127.0.0.1:51313", house.url)
    exec(code.replace("seb.key", house.token_file), {"spark": spark})
    assert "orders.eu" in capsys.readouterr().out

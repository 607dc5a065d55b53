"""The jobs, as spark-submit runs them. Killed ones are in test_lake.py."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import functions as sql
from pyspark_seb import stream_reader as pulling
from pyspark_seb.errors import ApplianceError
from pyspark_seb.options import read_options

from tests.spark.conftest import ENVIRONMENT, ROOT, House

JOBS = ROOT / "spark" / "jobs"


def job(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(module: ModuleType, house: House, *given: object) -> argparse.Namespace:
    base = ["--url", house.url, "--token-file", house.token_file]
    return module.arguments().parse_args([*base, *map(str, given)])


def lake(spark, path: Path) -> dict[str, list[int]]:
    """The offsets in it, by topic."""
    found: dict[str, list[int]] = {}
    for row in spark.read.parquet(str(path)).select("topic", "offset").collect():
        found.setdefault(row.topic, []).append(row.offset)
    return {topic: sorted(offsets) for topic, offsets in found.items()}


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.py")), ids=lambda path: path.stem)
def test_a_job_says_what_it_takes(path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, path, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **ENVIRONMENT},
    ).stdout
    assert "--token-file" in shown
    assert "spark-submit" in shown


def test_pulling_moves_the_group_when_all_is_written(spark, house, tmp_path) -> None:
    pull, topic, group = job("pull_committed"), house.name(), house.name("group")
    house.produce(topic, 1_000)
    given = asked(pull, house, "--topics", topic, "--group", group, "--out", tmp_path / "lake")
    assert pull.run(spark, given) == 1_000
    assert house.committed(group, topic) == 1_000
    assert pull.run(spark, given) == 0
    house.produce(topic, 500)
    assert pull.run(spark, given) == 500
    assert lake(spark, tmp_path / "lake") == {topic: list(range(1_500))}
    names = {path.name for path in (tmp_path / "lake" / f"topic={topic}").glob("date=*/offsets=*")}
    assert names == {"offsets=0-1000", "offsets=1000-1500"}


def test_a_pull_that_died_before_it_committed_is_done_again_in_place(
    spark, house, tmp_path, monkeypatch
) -> None:
    pull, topic, group = job("pull_committed"), house.name(), house.name("group")
    house.produce(topic, 1_000)
    given = asked(pull, house, "--topics", topic, "--group", group, "--out", tmp_path / "lake")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pulling, "finish", dies)
        with pytest.raises(KeyboardInterrupt):
            pull.run(spark, given)
    house.produce(topic, 500)
    assert pull.run(spark, given) == 1_000
    assert lake(spark, tmp_path / "lake") == {topic: list(range(1_000))}
    assert pull.run(spark, given) == 500
    assert lake(spark, tmp_path / "lake") == {topic: list(range(1_500))}


def test_of_two_pulls_at_once_one_commits(spark, house, tmp_path) -> None:
    pull, topic, group = job("pull_committed"), house.name(), house.name("group")
    house.produce(topic, 10)
    given = asked(pull, house, "--topics", topic, "--group", group, "--out", tmp_path / "lake")
    options = read_options({**house.options(topics=topic, group=group)})
    slower = pulling.begin(house.appliance, options, None)
    assert pull.run(spark, given) == 10
    with pytest.raises(ApplianceError, match="offset_conflict"):
        pulling.finish(house.appliance, group, slower)


def test_a_lake_and_its_replay_hold_what_the_topic_held(spark, house, tmp_path) -> None:
    stream, replay = job("stream_to_parquet"), job("replay")
    topic, again, group = house.name(), house.name(), house.name("group")
    house.produce(topic, 3_000, keys=5)
    where = ["--out", tmp_path / "lake", "--max-records", 2_000]
    given = asked(stream, house, "--topics", topic, "--group", group, "--once", *where)
    for _ in range(2):
        stream.run(spark, given)
    assert lake(spark, tmp_path / "lake") == {topic: list(range(3_000))}
    assert house.committed(group, topic) == 3_000
    names = ["--from-topic", topic, "--to-topic", again]
    replay.run(spark, asked(replay, house, "--in", tmp_path / "lake", *names))
    first, second = (
        sorted(
            spark.read.format("seb")
            .options(**house.options(topics=name))
            .load()
            .select("offset", "key", "value", "timestamp")
            .collect()
        )
        for name in (topic, again)
    )
    assert first == second


def test_key_history_has_each_version_of_each_key(spark, house, tmp_path) -> None:
    history, topic = job("key_history"), house.name()
    for key, value in [("a", "1"), ("b", "1"), ("a", "2"), ("b", None)]:
        record = {"key": key, "value": value}
        path = f"/v1/topics/{topic}/records"
        house.appliance.send("POST", path, {"records": [record]})
    history.run(spark, asked(history, house, "--topics", topic, "--out", tmp_path / "table"))
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


def test_the_lag_report_has_a_row_for_each_topic_of_each_group(spark, house) -> None:
    report, topic, group = job("lag_report"), house.name(), house.name("group")
    house.produce(topic, 10)
    house.commit(group, topic, 4)
    table = report.report(spark, asked(report, house))
    (row,) = table.where(sql.col("group") == group).collect()
    assert (row.topic, row.committed_offset, row.lag_records) == (topic, 4, 6)


def test_the_example_of_the_documentation_runs(spark, house, capsys) -> None:
    house.produce("orders.eu", 3)
    doc = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    block = re.search(r"^    records = \(\n(?:    .*\n)+", doc, re.MULTILINE)
    assert block is not None
    code = textwrap.dedent(block[0]).replace("http://127.0.0.1:51313", house.url)
    exec(code.replace("seb.key", house.token_file), {"spark": spark})
    assert "orders.eu" in capsys.readouterr().out

"""A batch of one's own: its offsets can be read and committed, and every action sees the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql
from pyspark_seb import commit, narrowed, offsets_of
from pyspark_seb.errors import ApplianceError, BadOptionError

from tests.spark.conftest import START_US, House
from tests.spark.test_batch import load

SHARED = """
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThanOrEqual, InputPartition

class Reader(DataSourceReader):
    first = 0
    def pushFilters(self, filters):
        for one in filters:
            if isinstance(one, GreaterThanOrEqual):
                self.first = max(self.first, one.value)
            yield one
    def partitions(self):
        return [InputPartition(0)]
    def read(self, partition):
        return iter([(n,) for n in range(self.first, 10)])

class Source(DataSource):
    @classmethod
    def name(cls):
        return "shared"
    def schema(self):
        return "number long"
    def reader(self, schema):
        return Reader()
"""


def test_where_a_dataframe_ends_is_known_and_committed(spark, house) -> None:
    topic, other, group = house.name(), house.name(), house.name("group")
    house.produce(topic, 100)
    house.produce(other, 10)
    house.commit(group, topic, 30)
    given = house.options(topics=f"{topic},{other}", group=group)
    frame = spark.read.format("seb").options(**given).load()
    derived = frame.where("offset > 3").select("value", "offset")
    assert {name: (one.start, one.end) for name, one in offsets_of(derived).items()} == {
        topic: (30, 100),
        other: (0, 10),
    }
    house.produce(topic, 5)
    commit(derived, group, given)
    assert house.committed(group, topic) == 100
    assert house.committed(group, other) == 10
    with pytest.raises(BadOptionError, match="does not tell its offsets"):
        offsets_of(frame.select("value"))


def test_a_group_that_was_moved_since_the_load_is_not_committed(spark, house) -> None:
    topic, group = house.name(), house.name("group")
    house.produce(topic, 100)
    given = house.options(topics=topic, group=group)
    frame = spark.read.format("seb").options(**given).load()
    house.commit(group, topic, 50)
    with pytest.raises(ApplianceError) as error:
        commit(frame, group, given)
    assert error.value.code == "offset_conflict"
    assert house.committed(group, topic) == 50


def test_files_that_spark_writes_name_no_host_and_no_path(spark, house, tmp_path: Path) -> None:
    topic = house.name()
    house.produce(topic, 10)
    load(spark, house, topics=topic).coalesce(1).write.parquet(str(tmp_path / "lake"))
    [written] = (tmp_path / "lake").glob("*.parquet")
    assert topic.encode() in written.read_bytes()
    assert b"127.0.0.1" not in written.read_bytes()
    assert house.token_file.encode() not in written.read_bytes()


@pytest.mark.parametrize("transport", ["api", "direct"])
def test_actions_of_a_dataframe_do_not_differ_unnoticed_by_compaction(
    spark, house, transport
) -> None:
    topic = house.name("compacted")
    later = {"cleanup": "compact", "min_compaction_lag_ms": 3_600_000}
    house.appliance.send("PUT", f"/v1/topics/{topic}", later)
    house.produce(topic, 20_000, size=200, keys=50)
    frame = load(spark, house, topics=topic, transport=transport)
    lenient = load(spark, house, topics=topic, transport=transport, failOnCompaction="false")
    before = frame.count()
    house.change(topic, min_compaction_lag_ms=0)
    house.compacted(topic)
    with pytest.raises(PySparkException) as error:
        frame.count()
    assert "was compacted since the DataFrame was loaded" in str(error.value)
    assert lenient.count() < before
    again = load(spark, house, topics=topic, transport=transport, endingOffsets=20_000)
    assert again.count() == lenient.count()


@pytest.fixture(scope="module")
def mixed(house: House) -> tuple[str, str]:
    """Two topics with record keys, whose timestamps go back once."""
    names = house.name(), house.name()
    for name in names:
        house.produce(name, 60, keys=7)
        late = {"value": "late", "key": "key-1", "timestamp": "2026-09-21T14:13:30Z"}
        house.appliance.send("POST", f"/v1/topics/{name}/records", {"records": [late]})
        house.produce(name, 40, keys=5)
    return names


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from([None, [0], [1], [0, 1], []]),
    st.integers(0, 110),
    st.none() | st.integers(0, 110),
    st.none() | st.integers(0, 110),
    st.none() | st.lists(st.integers(0, 9), max_size=3),
)
def test_a_narrowed_dataframe_has_the_rows_of_the_filter(
    spark, house, mixed, picked, begin, end, after_s, keys
) -> None:
    given = house.options(topics=",".join(mixed))
    frame = spark.read.format("seb").options(**given).load()
    topics = None if picked is None else [mixed[i] for i in picked]
    since = (
        None
        if after_s is None
        else f"2026-09-21T14:{13 + (20 + after_s) // 60:02}:{(20 + after_s) % 60:02}Z"
    )
    named = None if keys is None else [b"key-%d" % n for n in keys]
    wanted = frame.where(sql.col("offset") >= begin)
    if topics is not None:
        wanted = wanted.where(sql.col("topic").isin(topics))
    if end is not None:
        wanted = wanted.where(sql.col("offset") < end)
    if since is not None:
        wanted = wanted.where(sql.unix_micros("timestamp") >= START_US + after_s * 1_000_000)
    if named is not None:
        wanted = wanted.where(sql.col("key").isin([bytearray(one) for one in named]))
    found = narrowed(
        frame, given, topics=topics, from_offset=begin, until_offset=end, since=since,
        record_keys=named,
    )  # fmt: skip
    assert sorted(found.collect()) == sorted(wanted.collect())


def test_spark_gives_what_one_filter_left_out_to_other_uses_of_a_dataframe(
    spark, tmp_path, monkeypatch
) -> None:
    """Why this source takes no filters over: when this fails, Spark can be trusted with it."""
    (tmp_path / "seb_shared_plan.py").write_text(SHARED)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = __import__("seb_shared_plan")
    spark.sparkContext.addPyFile(str(tmp_path / "seb_shared_plan.py"))
    spark.dataSource.register(source.Source)
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = spark.read.format("shared").load()
        assert frame.where("number >= 6").count() == 4
        assert frame.count() == 4  # and not 10
    finally:
        spark.conf.unset(setting)
        sys.modules.pop("seb_shared_plan", None)

"""Batch reads: what Spark sees is what was produced, and nothing floats."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import START_US, House, value_of


def load(spark, house: House, **options: object):
    return spark.read.format("seb").options(**house.options(**options)).load()


def failure(error: pytest.ExceptionInfo) -> str:
    return str(error.value)


def test_a_read_has_every_record_as_it_was_produced(spark, house) -> None:
    topic = house.name()
    house.produce(topic, 12_000, keys=7)
    rows = load(spark, house, topics=topic, minPartitions=5).collect()
    rows.sort(key=lambda row: row.offset)
    assert [row.offset for row in rows] == list(range(12_000))
    assert [bytes(row.value) for row in rows] == [value_of(n) for n in range(12_000)]
    assert [bytes(row.key) for row in rows] == [b"key-%d" % (n % 7) for n in range(12_000)]
    assert {row.topic for row in rows} == {topic}
    assert all(row.headers == {} for row in rows)
    assert rows[1].timestamp.timestamp() == START_US / 1_000_000 + 1


def test_record_batches_of_every_shape_are_one_dataframe(spark, house) -> None:
    """Keys or none, headers or none, tombstones: the Arrow schema is the same (pitfall 4)."""
    topic = house.name()
    path = f"/v1/topics/{topic}/records"
    house.produce(topic, 10)
    records = [
        {"value": "plain"},
        {"value": "with headers", "headers": {"a": "1", "b": "2"}},
        {"value": None, "key": "gone"},
    ]
    for record in records:
        house.appliance.send("POST", path, {"records": [record]})
    house.produce(topic, 3, keys=2)
    rows = sorted(load(spark, house, topics=topic).collect(), key=lambda row: row.offset)
    assert len(rows) == 16
    assert rows[11].headers == {"a": b"1", "b": b"2"}
    assert (rows[12].value, bytes(rows[12].key)) == (None, b"gone")
    without = load(spark, house, topics=topic, includeHeaders="false")
    assert without.columns == ["key", "value", "topic", "offset", "timestamp"]
    assert without.count() == 16


def test_latest_is_the_same_for_every_action_of_a_dataframe(spark, house) -> None:
    """Pitfall 3."""
    topic = house.name()
    house.produce(topic, 100)
    records = load(spark, house, topics=topic)
    assert records.count() == 100
    house.produce(topic, 100)
    assert records.count() == 100
    assert records.where("offset >= 0").count() == 100
    assert records.select("key").count() == 100
    assert load(spark, house, topics=topic).count() == 200


def test_options_count_however_they_are_written(spark, house) -> None:
    """Pitfall 1: an ending offset that is ignored reads everything."""
    topic = house.name()
    house.produce(topic, 50)
    assert load(spark, house, topics=topic, endingOffsets=10).count() == 10
    assert load(spark, house, topics=topic, STARTINGOFFSETS=40, endingoffsets=45).count() == 5


def test_places_are_numbers_words_times_and_json(spark, house) -> None:
    topic, other, group = house.name(), house.name(), house.name("group")
    house.produce(topic, 100)
    house.produce(other, 10)
    house.commit(group, topic, 30)
    both = f"{topic},{other}"
    assert load(spark, house, topics=both, group=group).count() == 70 + 10
    at_40 = "2026-09-21T14:14:00Z"  # START_US and 40 s
    assert load(spark, house, topics=topic, startingOffsets=at_40).count() == 60
    by_topic = f'{{"{topic}": 90, "{other}": "latest"}}'
    assert load(spark, house, topics=both, startingOffsets=by_topic).count() == 10
    assert load(spark, house, topics=topic, startingOffsets="latest").count() == 0
    assert load(spark, house, topics=f"{topic},{other}", startingOffsets="earliest").count() == 110


def test_the_kafka_source_s_options_read_the_same(spark, house) -> None:
    topic = house.name()
    house.produce(topic, 100)

    def count(**options: object) -> int:
        return load(spark, house, **options).count()

    assert count(subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 90}}}}') == 10
    assert count(subscribePattern=f"{topic[:-1]}[{topic[-1]}]", startingOffsets="latest-7") == 7
    assert count(assign=f'{{"{topic}": [0]}}', endingOffsets=f'{{"{topic}": -1}}') == 100
    at_40_ms = START_US // 1000 + 40_000
    assert count(topics=topic, startingTimestamp=at_40_ms) == 60
    assert count(topics=topic, endingOffsetsByTimestamp=f'{{"{topic}": {at_40_ms}}}') == 40
    frame = load(spark, house, topics=topic, maxRecordsPerPartition=30)
    assert frame.rdd.getNumPartitions() == 4


def test_headers_are_pairs_where_they_are_asked_for(spark, house) -> None:
    topic = house.name()
    rows = [(b"a", [("x", b"1"), ("x", b"2"), ("y", None)]), (b"b", []), (b"c", None)]
    kind = "value binary, headers array<struct<key: string, value: binary>>"
    frame = spark.createDataFrame(rows, kind).coalesce(1)
    frame.write.format("seb").mode("append").options(**house.options(topic=topic)).save()
    given = {"topics": topic, "headersAs": "array", "columns": "headers,offset"}
    found = load(spark, house, **given).orderBy("offset").collect()
    headers = [[(one.key, one.value) for one in row.headers] for row in found]
    assert headers == [[("x", b"1"), ("x", b"2"), ("y", None)], [], []]
    maps = load(spark, house, topics=topic).orderBy("offset").collect()
    assert maps[0].headers["x"] == b"2"


def test_a_filter_is_spark_s_own_work(spark, house) -> None:
    """Pitfall 2: a source that takes filters over cannot be read unless a setting is on."""
    topic = house.name()
    house.produce(topic, 100)
    records = load(spark, house, topics=topic)
    assert [row.offset for row in records.where("offset >= 5 and offset < 9").collect()] == [
        5, 6, 7, 8,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "orders"}, "unknown option 'topic'"),
        ({"topics": "orders", "endingOffset": "5"}, "unknown option 'endingoffset'"),
        ({"topics": "orders", "token": "x"}, "An API key is never an option"),
        ({"topics": "orders", "startingOffsets": "newest"}, "startingOffsets='newest'"),
        ({"topics": "orders", "startingOffsets": "committed"}, "needs the option group"),
        ({"topics": "no-such-topic"}, "topic_not_found"),
        ({"topics": "orders", "tokenFile": "/nowhere/seb.key"}, "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_loaded(spark, house, options, said) -> None:
    """Pitfall 19: Spark itself is silent about typos."""
    with pytest.raises(PySparkException) as error:
        load(spark, house, **options)
    assert said in failure(error)


def test_lost_records_are_an_error_that_says_how_many(spark, house) -> None:
    topic, group = house.name(), house.name("group")
    house.produce(topic, 100)
    house.commit(group, topic, 20)
    house.trim(topic, 60)
    with pytest.raises(PySparkException) as error:
        load(spark, house, topics=topic, group=group)
    for part in ("40 records", "offset 20", "starts at 60"):
        assert part in failure(error)
    assert load(spark, house, topics=topic, group=group, failOnDataLoss="false").count() == 40


def test_records_lost_between_plan_and_read_are_an_error(spark, house) -> None:
    """Pitfall 10."""
    topic = house.name()
    house.produce(topic, 100)
    planned = load(spark, house, topics=topic)
    skipping = load(spark, house, topics=topic, failOnDataLoss="false")
    house.trim(topic, 60)
    with pytest.raises(PySparkException) as error:
        planned.collect()
    assert "60 records of topic" in failure(error)
    assert skipping.count() == 40


def test_a_topic_made_anew_is_another_topic(spark, house) -> None:
    topic = house.name()
    house.produce(topic, 100)
    planned = load(spark, house, topics=topic)
    house.appliance.request("DELETE", f"/v1/topics/{topic}")
    house.produce(topic, 100)
    with pytest.raises(PySparkException) as error:
        planned.collect()
    assert "created again" in failure(error)


def test_no_secret_is_in_a_plan(spark, house) -> None:
    topic = house.name()
    house.produce(topic, 10)
    records = load(spark, house, topics=topic, transport="direct")
    records.collect()
    plan = records._jdf.queryExecution().toString() + str(spark.sparkContext.getConf().getAll())
    secret = Path(house.token_file).read_text().strip()
    assert secret not in plan
    assert "X-Amz" not in plan


def test_a_schema_of_ones_own_is_refused(spark, house) -> None:
    topic = house.name()
    house.produce(topic, 1)
    reader = spark.read.format("seb").options(**house.options(topics=topic))
    with pytest.raises(PySparkException) as error:
        reader.schema("value string").load().collect()
    assert "leave .schema" in failure(error)

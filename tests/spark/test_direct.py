"""`transport=direct`: tasks read segments from the bucket; what is not in one comes by the API."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark_seb.arrow.columns import arrow_schema, spark_schema
from pyspark_seb.client import Answer, Connection
from pyspark_seb.options import ReadOptions, TopicRange, read_options
from pyspark_seb.reading import ranges as segments
from pyspark_seb.reading.ranges import read_range

from tests.spark.conftest import House, value_of

COUNT, SIZE = 60_000, 200
SCHEMA = arrow_schema(spark_schema(["key", "value", "topic", "offset", "timestamp"]))


@pytest.fixture(scope="module")
def topic(house: House) -> str:
    """12 MB, most of it in segments, and some records in the journal."""
    made = house.name("direct")
    house.produce(made, COUNT, size=SIZE)
    house.tidied(made)
    house.produce(made, 100, size=SIZE)
    return made


def options(house: House, topic: str, **more: str) -> ReadOptions:
    given = house.options(topics=topic, transport="direct", includeHeaders="false", **more)
    return read_options(given)


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    found = []
    for batch in batches:
        found += batch.column("offset").to_pylist()
    return found


def whole(house: House, topic: str) -> TopicRange:
    now = house.topic(topic)
    return TopicRange(topic, now["topic_id"], now["log_start_offset"], now["log_end_offset"])


def test_a_direct_read_has_every_record_and_leaves_the_appliance_alone(spark, house, topic) -> None:
    given = house.options(topics=topic, transport="direct", minPartitions=4)
    rows = spark.read.format("seb").options(**given).load().select("offset", "value").collect()
    rows.sort(key=lambda row: row.offset)
    assert [row.offset for row in rows] == list(range(COUNT + 100))
    assert all(bytes(row.value) == value_of(row.offset, SIZE) for row in rows)


def test_only_what_is_in_no_segment_passes_the_appliance(house, topic, monkeypatch) -> None:
    received = {"bucket": 0, "api": 0}
    exchange = Connection.exchange

    def counted(self, method, target, body, headers) -> Answer:
        answer = exchange(self, method, target, body, headers)
        received["bucket" if "X-Amz" in target else "api"] += len(answer.body)
        return answer

    monkeypatch.setattr(Connection, "exchange", counted)
    manifest = house.tidied(topic)
    asked = TopicRange(topic, manifest["topic_id"], 0, manifest["segments_end_offset"])
    batches = list(read_range(options(house, topic), asked, SCHEMA))
    assert numbers(batches) == list(range(asked.end))
    # Part of it may lie in a packed object, which has other topics' records, too.
    in_segments = sum(
        section["length"] for segment in manifest["segments"] for section in segment["sections"]
    )
    assert received["bucket"] >= in_segments > COUNT * SIZE / 2
    assert received["bucket"] + received["api"] < COUNT * SIZE * 1.1


def test_a_url_that_has_expired_is_renewed(house, topic, monkeypatch) -> None:
    refused = []
    exchange = Connection.exchange

    def expiring(self, method, target, body, headers) -> Answer:
        if "X-Amz" in target and len(refused) < 3:
            refused.append(target)
            return Answer(403, {}, b"<Code>AccessDenied</Code>")
        return exchange(self, method, target, body, headers)

    monkeypatch.setattr(Connection, "exchange", expiring)
    wanted = whole(house, topic)
    assert numbers(list(read_range(options(house, topic), wanted, SCHEMA))) == list(
        range(wanted.end)
    )
    assert len(refused) == 3


def test_a_bucket_that_refuses_for_good_is_told_without_the_url(house, topic, monkeypatch) -> None:
    exchange = Connection.exchange

    def refusing(self, method, target, body, headers) -> Answer:
        if "X-Amz" in target:
            return Answer(403, {}, b"")
        return exchange(self, method, target, body, headers)

    monkeypatch.setattr(Connection, "exchange", refusing)
    monkeypatch.setattr(segments, "PAUSE_S", 0.0)
    with pytest.raises(Exception, match="answers 403") as error:
        list(read_range(options(house, topic), whole(house, topic), SCHEMA))
    assert "X-Amz" not in str(error.value)


def test_other_bytes_than_were_stored_are_found_out(house, topic, monkeypatch) -> None:
    exchange = Connection.exchange

    def flipping(self, method, target, body, headers) -> Answer:
        answer = exchange(self, method, target, body, headers)
        if "X-Amz" not in target:
            return answer
        middle = len(answer.body) // 2
        flipped = answer.body[:middle] + bytes([answer.body[middle] ^ 1])
        return Answer(answer.status, answer.headers, flipped + answer.body[middle + 1 :])

    monkeypatch.setattr(Connection, "exchange", flipping)
    with pytest.raises(Exception, match="other bytes of topic"):
        list(read_range(options(house, topic), whole(house, topic), SCHEMA))


def test_records_below_the_log_start_are_not_read_from_a_segment(house) -> None:
    topic = house.name("trimmed")
    house.produce(topic, 30_000, size=SIZE)
    house.tidied(topic)
    planned = whole(house, topic)
    house.trim(topic, 123)
    read = list(read_range(options(house, topic, failOnDataLoss="false"), planned, SCHEMA))
    assert numbers(read) == list(range(123, 30_000))
    with pytest.raises(Exception, match="123 records of topic"):
        list(read_range(options(house, topic), planned, SCHEMA))


def test_segments_that_are_replaced_meanwhile_are_read_to_the_end(house) -> None:
    topic = house.name("merged")
    house.produce(topic, 30_000, size=SIZE)
    house.tidied(topic)
    reading = read_range(options(house, topic), whole(house, topic), SCHEMA)
    first = next(reading)
    before = house.status()["tidier"]["jobs"]
    house.produce(topic, 30_000, size=SIZE)
    house.tidied(topic)
    assert house.status()["tidier"]["jobs"] > before
    assert numbers([first, *reading]) == list(range(30_000))

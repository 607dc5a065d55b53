"""Gathering record batches into requests."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType, TimestampType
from pyspark_seb.arrow.rows import RowSchema, record_batches
from pyspark_seb.client import Answer, Appliance
from pyspark_seb.errors import ApplianceError, RowsChangedError
from pyspark_seb.writing import batch as sending
from pyspark_seb.writing.batch import Gathered, Producer

from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

KINDS = {"value": BinaryType, "timestamp": TimestampType}
TYPES = {"value": pa.binary(), "timestamp": pa.timestamp("us", "UTC")}


class Refusing(Producer):
    """Notes what is appended; refuses the request of that number."""

    def __init__(self, refused: int = -1) -> None:
        self.appended: list[tuple[str, int]] = []
        self.records = {}
        self._refused = refused

    def finish(self) -> None:
        pass

    def append(self, topic: str, body: bytes, count: int, checksum: int) -> None:
        if len(self.appended) == self._refused:
            raise ApplianceError("POST", 403, "forbidden", "not allowed", {})
        assert sum(header.count for _, header in batch.walk(body)) == count
        self.appended.append((topic, count))


def batch_of(count: int, size: int = 10) -> bytes:
    columns = Columns(int64s([0] * count), BinaryColumn.of([b"x" * size] * count))
    return batch.encode(columns, base_offset=0, created_us=0)


def test_a_request_holds_neighbouring_batches_up_to_a_limit(monkeypatch) -> None:
    monkeypatch.setattr(sending, "REQUEST_RECORDS", 25)
    producer = Refusing()
    with Gathered(producer) as gathered:
        for _ in range(6):
            gathered.add("a", batch_of(10), 1)
        gathered.add("b", batch_of(3), 1)
        gathered.whole()
    assert producer.appended == [("a", 20), ("a", 20), ("a", 20), ("b", 3)]


def test_a_request_holds_so_many_bytes_or_one_batch(monkeypatch) -> None:
    monkeypatch.setattr(sending, "REQUEST_BYTES", 1_000)
    producer = Refusing()
    with Gathered(producer) as gathered:
        for count, size in ((1, 5_000), (1, 300), (1, 300), (1, 300)):
            gathered.add("a", batch_of(count, size), 1)
        gathered.whole()
    assert producer.appended == [("a", 1), ("a", 2), ("a", 1)]


def add(producer: Producer, batches: int) -> None:
    with Gathered(producer) as gathered:
        for _ in range(batches):
            gathered.add("a", batch_of(10), 1)
        gathered.whole()


def test_no_request_has_rows_of_two_of_sparks_batches() -> None:
    """Spark may end the rows after any of them, and send more when the task is tried again."""
    producer = Refusing()
    with Gathered(producer) as gathered:
        for _ in range(3):
            gathered.add("a", batch_of(10), 1)
            gathered.whole()
    assert producer.appended == [("a", 10)] * 3


def test_a_refusal_is_told_at_the_next_request_or_at_the_end(monkeypatch) -> None:
    monkeypatch.setattr(sending, "REQUEST_RECORDS", 10)
    producer = Refusing(refused=0)
    with pytest.raises(ApplianceError):
        add(producer, 1)
    producer = Refusing(refused=1)
    with pytest.raises(ApplianceError):
        add(producer, 9)
    assert producer.appended == [("a", 10)]


class Numbering(Appliance):
    """Compares numbers and checksums as an appliance does."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.remembered = 5

    def request(self, _: str, __: str, ___: object = None, headers=None) -> Answer:
        seq, checksum = int(headers["Producer-Seq"]), headers["Producer-Checksum"]
        if seq > len(self.stored):
            data = {"expected": len(self.stored)}
            raise ApplianceError("POST", 409, "sequence_gap", "a gap", data)
        if seq == len(self.stored):
            self.stored.append(checksum)
            return Answer(201, {}, b"")
        recent = seq >= len(self.stored) - self.remembered
        if recent and self.stored[seq] != checksum:
            raise ApplianceError("POST", 422, "idempotency_mismatch", "another checksum", {})
        return Answer(200, {}, b"")


def append(appliance: Appliance, checksums: list[int]) -> dict[str, int]:
    producer = Producer(appliance, "spark-1", 0)
    for checksum in checksums:
        producer.append("a", batch_of(10), 10, checksum)
    producer.finish()
    return producer.records


def test_what_was_stored_before_is_repeated_and_the_rest_is_appended() -> None:
    appliance = Numbering()
    append(appliance, [1, 2, 3])
    assert append(appliance, [1, 2, 3]) == {"a": 30}
    assert append(appliance, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == {"a": 90}
    assert append(appliance, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == {"a": 90}
    assert len(appliance.stored) == 9


@pytest.mark.parametrize("changed", range(9))
def test_other_rows_under_a_number_that_was_used_are_an_error(changed) -> None:
    """Also under one so old that the appliance does not compare it any more."""
    appliance, rows = Numbering(), list(range(9))
    append(appliance, rows)
    rows[changed] = 99
    with pytest.raises(RowsChangedError, match="other records for topic 'a'"):
        append(appliance, rows)
    assert len(appliance.stored) == 9


@pytest.mark.parametrize("sent", [1, 3, 4, 8])
def test_fewer_rows_than_the_time_before_are_an_error(sent) -> None:
    appliance, rows = Numbering(), list(range(9))
    append(appliance, rows)
    with pytest.raises(RowsChangedError, match=f"9 requests, and {sent} now"):
        append(appliance, rows[:sent])


@pytest.mark.parametrize("name", ["key", "value", "headers"])
def test_no_record_batch_is_larger_than_a_request_may_be(name: str) -> None:
    """So a job with 10,000 record keys of 2 KB was refused (413), whoever ran it again."""
    items: list[object] = [b"x" * 2_000] * 12_000
    headers = pa.array([[("h", item)] for item in items], pa.map_(pa.string(), pa.binary()))
    columns = {"value": pa.array([b"v"] * len(items), pa.binary())}
    columns[name] = headers if name == "headers" else pa.array(items, pa.binary())
    rows = RowSchema(frozenset(columns))
    batches = [
        batch.read_header(made)
        for made, _ in record_batches(rows, pa.RecordBatch.from_pydict(columns), 0)
    ]
    assert sum(header.count for header in batches) == len(items)
    assert all(header.inflated_bytes < sending.REQUEST_BYTES for header in batches)
    assert len(batches) < 8


def test_a_checksum_is_of_what_rows_say_and_not_of_when_they_came() -> None:
    def checksum(rows: list[tuple], names: list[str], now_us: int) -> int:
        schema = StructType([StructField(name, KINDS[name]()) for name in names])
        columns = [pa.array([row[i] for row in rows], TYPES[name]) for i, name in enumerate(names)]
        made = record_batches(RowSchema.of(schema), pa.record_batch(columns, names), now_us)
        return next(number for _, number in made)

    value = ["value"]
    assert checksum([(b"a",), (b"b",)], value, 1) == checksum([(b"a",), (b"b",)], value, 2)
    assert checksum([(b"a",), (b"b",)], value, 1) != checksum([(b"b",), (b"a",)], value, 1)
    timed = ["value", "timestamp"]
    assert checksum([(b"a", 1)], timed, 1) != checksum([(b"a", 2)], timed, 1)
    assert checksum([(b"a", None)], timed, 1) == checksum([(b"a", None)], timed, 2)

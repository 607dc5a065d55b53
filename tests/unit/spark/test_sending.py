"""Gathering record batches into requests."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from pyspark_seb import sending
from pyspark_seb.client import Answer, Appliance
from pyspark_seb.errors import ApplianceError, RowsChangedError
from pyspark_seb.sending import Gathered, Producer

from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s


class Refusing(Producer):
    """Notes what is appended; refuses the request of that number."""

    def __init__(self, refused: int = -1) -> None:
        self.appended: list[tuple[str, int]] = []
        self.records = {}
        self._refused = refused

    def append(self, topic: str, body: bytes, count: int) -> None:
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
            gathered.add("a", batch_of(10), 10)
        gathered.add("b", batch_of(3), 3)
        gathered.whole()
    assert producer.appended == [("a", 20), ("a", 20), ("a", 20), ("b", 3)]


def test_a_request_holds_so_many_bytes_or_one_batch(monkeypatch) -> None:
    monkeypatch.setattr(sending, "REQUEST_BYTES", 1_000)
    producer = Refusing()
    with Gathered(producer) as gathered:
        for count, size in ((1, 5_000), (1, 300), (1, 300), (1, 300)):
            gathered.add("a", batch_of(count, size), count)
        gathered.whole()
    assert producer.appended == [("a", 1), ("a", 2), ("a", 1)]


def add(producer: Producer, batches: int) -> None:
    with Gathered(producer) as gathered:
        for _ in range(batches):
            gathered.add("a", batch_of(10), 10)
        gathered.whole()


def test_no_request_has_rows_of_two_of_sparks_batches() -> None:
    """Spark may end the rows after any of them, and send more when the task is tried again."""
    producer = Refusing()
    with Gathered(producer) as gathered:
        for _ in range(3):
            gathered.add("a", batch_of(10), 10)
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


class Repeating(Appliance):
    """Answers every append as a repetition of so many records."""

    def __init__(self, stored: int | None) -> None:
        self._stored = stored

    def request(self, *_: object) -> Answer:  # type: ignore[override]
        return Answer(200, {}, json.dumps({"count": self._stored}).encode())


@pytest.mark.parametrize("stored", [10, None])
def test_a_repetition_counts_as_stored(stored) -> None:
    producer = Producer(Repeating(stored), "spark-1", 0)
    producer.append("a", batch_of(10), 10)
    assert producer.records == {"a": 10}


def test_other_rows_under_a_number_that_was_used_are_an_error() -> None:
    producer = Producer(Repeating(3), "spark-1", 0)
    with pytest.raises(RowsChangedError, match=r"10 records .* number of 3"):
        producer.append("a", batch_of(10), 10)

"""Stored batches to Arrow and back: every record, whatever the shape of its batch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import msgspec  # noqa: E402
from pyspark_seb.arrow.columns import (  # noqa: E402  # noqa: E402
    ArrowBatches,
    arrow_schema,
    spark_schema,
)
from pyspark_seb.arrow.headers import RAW, packed_of, pairs_of  # noqa: E402
from pyspark_seb.arrow.rows import BATCH_BYTES, RowSchema, record_batches  # noqa: E402

from seb_appliance.formats import batch  # noqa: E402
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s  # noqa: E402

SCHEMA = arrow_schema(spark_schema())
ARRAYS = arrow_schema(spark_schema(headers_as_array=True))
ALL = RowSchema(frozenset({"key", "value", "headers", "timestamp"}))

RECORD = st.tuples(
    st.none() | st.binary(max_size=5),
    st.none() | st.binary(max_size=20),
    st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=2),
    st.integers(0, 2**50),
)


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    found = []
    for made in batches:
        assert made.schema.equals(SCHEMA)
        for row in made.to_pylist():
            time_us = round(row["timestamp"].timestamp() * 1_000_000)
            found.append((row["key"], row["value"], dict(row["headers"]), row["offset"], time_us))
    return found


def encoded(records: list, base: int, step: int = 1) -> bytes:
    keys, values, headers, times = zip(*records, strict=True)
    packed = [msgspec.msgpack.encode(found) if found else b"" for found in headers]
    offsets = int64s(range(base, base + step * len(records), step)) if step > 1 else None
    columns = Columns(
        int64s(times),
        BinaryColumn.of(values),
        BinaryColumn.of(keys) if any(key is not None for key in keys) else None,
        BinaryColumn.of(packed) if any(packed) else None,
        offsets,
    )
    last = base + step * (len(records) - 1)
    return batch.encode(columns, base_offset=base, last_offset=last, created_us=1)


@given(
    st.lists(st.lists(RECORD, min_size=1, max_size=9), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 12),
    st.integers(0, 40),
)
def test_a_range_has_its_records_and_no_others(batches, step, start, length) -> None:
    stored, wanted, base = b"", [], 3
    for records in batches:
        stored += encoded(records, base, step)
        for i, (key, value, headers, time_us) in enumerate(records):
            wanted.append((key, value, headers, base + i * step, time_us))
        base += step * len(records)
    made = ArrowBatches("orders", SCHEMA)
    found = [*made.take(stored, start, start + length), *made.rest()]
    assert rows_of(found) == [row for row in wanted if start <= row[3] < start + length]


def test_a_compressed_batch_is_read_as_any_other() -> None:
    stored = batch.compress(encoded([(b"k", b"v" * 500, {}, 7)] * 20, 0), 1)
    made = ArrowBatches("orders", SCHEMA)
    assert len(rows_of([*made.take(stored, 0, 20), *made.rest()])) == 20


@settings(max_examples=50)
@given(st.lists(RECORD, min_size=1, max_size=30), st.integers(0, 29))
def test_rows_are_what_is_appended(records, begin) -> None:
    keys, values, headers, times = (list(column) for column in zip(*records, strict=True))
    made = pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([list(found.items()) for found in headers], SCHEMA.field("headers").type),
            pa.array(times, pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "headers", "timestamp"],
    ).slice(begin)
    bodies = list(record_batches(ALL, made, 0))
    assert sum(batch.read_header(body).count for body, _ in bodies) == made.num_rows
    back = ArrowBatches("orders", SCHEMA)
    found = [part for body, _ in bodies for part in back.take(body, 0, 100)]
    rows = [(key, value, heads, at) for key, value, heads, _, at in rows_of([*found, *back.rest()])]
    assert rows == records[begin:]


PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=200)), max_size=4)


@given(st.lists(PAIRS, min_size=1, max_size=6))
def test_headers_as_pairs_are_kept_with_repetitions_and_nulls(headers) -> None:
    kind = ARRAYS.field("headers").type
    rows = [[{"key": name, "value": value} for name, value in pairs] for pairs in headers]
    values = pa.array([b"v"] * len(rows), pa.binary())
    made = pa.RecordBatch.from_arrays([values, pa.array(rows, kind)], names=["value", "headers"])
    back = ArrowBatches("orders", ARRAYS)
    bodies = list(record_batches(RowSchema(frozenset({"value", "headers"})), made, 0))
    found = [part for body, _ in bodies for part in back.take(body, 0, 100)]
    batches = [*found, *back.rest()]
    assert all(one.schema.equals(ARRAYS) for one in batches)
    assert [row["headers"] for one in batches for row in one.to_pylist()] == rows


@given(st.binary(max_size=12))
def test_a_header_section_of_other_bytes_is_a_header_like_any_other(raw) -> None:
    """Anyone may send a header of that name."""
    pairs = pairs_of(msgspec.msgpack.encode({RAW: raw}))
    assert pairs == [(RAW, raw)] or packed_of(pairs) or pairs == []


def test_only_the_columns_that_are_asked_for_are_made() -> None:
    schema = arrow_schema(spark_schema(["offset", "value"]))
    made = ArrowBatches("orders", schema)
    [found] = [*made.take(encoded([(b"k", b"v", {}, 7)] * 2, 5), 6, 7), *made.rest()]
    assert found.to_pydict() == {"offset": [6], "value": [b"v"]}


def test_a_batch_holds_no_more_than_it_may() -> None:
    values = [b"x" * (BATCH_BYTES // 3)] * 7 + [b"y" * 10] * 20_000
    made = pa.record_batch([pa.array(values, pa.binary())], names=["value"])
    bodies = list(record_batches(RowSchema(frozenset({"value"})), made, 5))
    headers = [batch.read_header(body) for body, _ in bodies]
    assert sum(header.count for header in headers) == len(values)
    for header in headers:
        assert header.count <= 10_000
        assert header.inflated_bytes < 2 * BATCH_BYTES

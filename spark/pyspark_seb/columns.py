"""Stored columns as Spark's columns: record batches become Arrow by wrapping their buffers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from seb_appliance.formats import batch as formats
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import BinaryColumn, Bytes

# Small batches are joined until they have one of these, so that Spark is not fed crumbs.
JOINED_RECORDS: Final = 10_000
JOINED_BYTES: Final = 4 * 1024 * 1024

_decode_headers: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def spark_schema(*, include_headers: bool) -> StructType:
    """What a read gives. `headers` is an empty map where a record has none."""
    headers = StructField("headers", MapType(StringType(), BinaryType()), nullable=False)
    return StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            *([headers] if include_headers else []),
            StructField("topic", StringType(), nullable=False),
            StructField("offset", LongType(), nullable=False),
            StructField("timestamp", TimestampType(), nullable=False),
        ]
    )


STORED_SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("packed", BinaryType()),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", LongType(), nullable=False),
        StructField("created", LongType(), nullable=False),
    ]
)
"""Records as they are stored, so that they can be stored again: `packed` are the headers as the
format has them; `timestamp`, and `created` of the record's batch, in us."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark compares it: the names, the types and what may be null."""
    return to_arrow_schema(schema, timezone="UTC")


class ArrowBatches:
    """Makes Arrow record batches of one topic's stored ones. Nothing is copied where a stored batch
    is large; small ones are joined."""

    def __init__(self, topic: str, schema: pa.Schema) -> None:
        self._topic = topic
        self._schema = schema
        self._parts: list[pa.RecordBatch] = []
        self._records = self._bytes = 0

    def take(self, stored: Bytes, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Batches back to back; of their records those with start ≤ offset < end. Raises
        BadBatchError."""
        for at, header in formats.walk(stored):
            if header.last_offset < start or header.base_offset >= end:
                continue
            part = self._of(formats.decode(stored, at, header), start, end)
            if part.num_rows:
                self._parts.append(part)
                self._records += part.num_rows
                self._bytes += header.inflated_bytes
            if self._records >= JOINED_RECORDS or self._bytes >= JOINED_BYTES:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was taken and not given out yet."""
        if len(self._parts) == 1:
            yield self._parts[0]
        elif self._parts:
            yield pa.concat_batches(self._parts)
        self._parts = []
        self._records = self._bytes = 0

    def _of(self, batch: Batch, start: int, end: int) -> pa.RecordBatch:
        columns, count = batch.columns, batch.header.count
        made = {
            "key": _binary(columns.keys, count),
            "value": _binary(columns.values, count),
            "topic": pa.repeat(pa.scalar(self._topic), count),
            "offset": _offsets(batch),
            "timestamp": _int64s(columns.timestamps_us, count, self._type("timestamp")),
        }
        if "headers" in self._schema.names:
            made["headers"] = _headers(columns.headers, count, self._type("headers"))
        if "packed" in self._schema.names:
            made["packed"] = _binary(columns.headers, count)
            made["created"] = pa.repeat(pa.scalar(batch.header.created_us, pa.int64()), count)
        whole = pa.RecordBatch.from_arrays(
            [made[name] for name in self._schema.names], schema=self._schema
        )
        header = batch.header
        if header.base_offset >= start and header.last_offset < end:
            return whole
        offsets = batch.offsets()
        first = bisect_left(offsets, start)
        return whole.slice(first, bisect_left(offsets, end) - first)

    def _type(self, name: str) -> pa.DataType:
        return self._schema.field(name).type


def _buffer(data: Any) -> pa.Buffer:
    return pa.py_buffer(memoryview(data).cast("B") if len(data) else b"")


def _binary(column: BinaryColumn | None, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, pa.binary())
    valid = None if column.valid is None else _buffer(column.valid)
    buffers = [valid, _buffer(column.starts), _buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _int64s(numbers: Any, count: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, _buffer(numbers)])


def _offsets(batch: Batch) -> pa.Array:
    if batch.columns.offsets is not None:
        return _int64s(batch.columns.offsets, batch.header.count, pa.int64())
    return pa.arange(batch.header.base_offset, batch.header.base_offset + batch.header.count)


def _int32_zeros(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])


def _headers(column: BinaryColumn | None, count: int, kind: pa.DataType) -> pa.Array:
    if column is None:
        empty = pa.array([], kind.key_type), pa.array([], kind.item_type)
        return pa.MapArray.from_arrays(_int32_zeros(count + 1), *empty, type=kind)
    maps = [_decode_headers(item) if item else {} for item in column.slice()]
    starts = pa.array(accumulate(map(len, maps), initial=0), pa.int32())
    names = pa.array([name for record in maps for name in record], pa.string())
    values = pa.array([value for record in maps for value in record.values()], pa.binary())
    return pa.MapArray.from_arrays(starts, names, values, type=kind)

"""Stored columns as Spark's columns: record batches become Arrow by wrapping their buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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

from seb_appliance.formats import arrow
from seb_appliance.formats import batch as formats
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import Bytes

# Small batches are joined until they have one of these, so that Spark is not fed crumbs.
JOINED_RECORDS: Final = 10_000
JOINED_BYTES: Final = 4 * 1024 * 1024


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
        whole = arrow.record_batch(batch, self._topic, self._schema)
        return arrow.sliced(whole, batch, start, end)

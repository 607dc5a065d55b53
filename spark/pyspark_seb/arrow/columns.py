"""Stored records as Arrow columns. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_seb.arrow.headers import pairs_of
from pyspark_seb.declared import COLUMNS
from seb_appliance.formats import arrow
from seb_appliance.formats import batch as formats
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import Bytes

# Small batches are joined until they have one of these, so that Spark is not fed crumbs.
JOINED_RECORDS: Final = 10_000
JOINED_BYTES: Final = 4 * 1024 * 1024


PAIR: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def spark_schema(names: Iterable[str] = COLUMNS, *, headers_as_array: bool = False) -> StructType:
    """What a read gives. `headers` is empty where a record has none."""
    kinds: dict[str, DataType] = {
        "key": BinaryType(),
        "value": BinaryType(),
        "headers": ArrayType(PAIR) if headers_as_array else MapType(StringType(), BinaryType()),
        "topic": StringType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
    }
    return StructType(
        [StructField(name, kinds[name], nullable=name in {"key", "value"}) for name in names]
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


_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    ArrayType: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
    BinaryType: pa.binary(),
    LongType: pa.int64(),
    MapType: pa.map_(pa.string(), pa.binary()),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark compares it: the names, the types and what may be null."""
    fields = [pa.field(one.name, _ARROW[type(one.dataType)], one.nullable) for one in schema]
    return pa.schema(fields)


class ArrowBatches:
    """Makes Arrow record batches of one topic's stored ones. Nothing is copied where a stored batch
    is large; small ones are joined."""

    def __init__(
        self, topic: str, schema: pa.Schema, record_keys: Iterable[bytes] | None = None
    ) -> None:
        """`record_keys`: of the records that are wanted; None: all."""
        self._topic = topic
        self._schema = schema
        self._stored = schema  # what is made of a stored batch at first
        self._keys = None
        if record_keys is not None:
            self._keys = pa.array(list(record_keys), pa.binary())
            if "key" not in schema.names:
                self._stored = schema.append(pa.field("key", pa.binary()))
        self._pairs_at = -1
        if "headers" in schema.names and pa.types.is_list(schema.field("headers").type):
            self._pairs_at = schema.names.index("headers")
            self._stored = self._stored.set(self._pairs_at, pa.field("packed", pa.binary()))
        self._parts: list[pa.RecordBatch] = []
        self._records = self._bytes = 0

    def take(self, stored: Bytes, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Batches back to back; of their records those with start ≤ offset < end. Raises
        BadBatchError."""
        for at, header in formats.walk(stored):
            if header.last_offset < start or header.base_offset >= end:
                continue
            part = self._of(arrow.decode(stored, at, header), start, end)
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
            # Not concat_batches, which pyarrow 11 lacks.
            yield from pa.Table.from_batches(self._parts).combine_chunks().to_batches()
        self._parts = []
        self._records = self._bytes = 0

    def _of(self, batch: Batch, start: int, end: int) -> pa.RecordBatch:
        whole = arrow.record_batch(batch, self._topic, self._stored)
        part = arrow.sliced(whole, batch, start, end)
        if self._keys is not None:
            import pyarrow.compute as pc  # takes long, and each task begins with the imports

            part = part.filter(pc.is_in(part.column("key"), self._keys))
        if self._stored is self._schema:
            return part
        columns = part.columns[: len(self._schema)]
        if self._pairs_at >= 0:
            kind = self._schema.field("headers").type
            columns[self._pairs_at] = _pairs(columns[self._pairs_at], kind)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _pairs(packed: pa.Array, kind: pa.DataType) -> pa.Array:
    if packed.null_count == len(packed):  # no record of the batch has headers
        starts = pa.repeat(pa.scalar(0, pa.int32()), len(packed) + 1)
        return pa.ListArray.from_arrays(starts, pa.array([], kind.value_type), type=kind)
    rows = [
        [{"key": name, "value": value} for name, value in pairs_of(item)]
        for item in packed.to_pylist()
    ]
    return pa.array(rows, kind)

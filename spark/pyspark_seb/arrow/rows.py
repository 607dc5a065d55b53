"""Arrow columns, rows of a DataFrame, as record batches and segments. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pyspark_seb.arrow.columns import PAIR
from pyspark_seb.arrow.headers import packed_of
from pyspark_seb.errors import BadOptionError
from seb_appliance import limits
from seb_appliance.formats import batch as formats
from seb_appliance.formats import segment
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.operations import StoredSection

BATCH_RECORDS: Final = 10_000
# Of values; a request may have 16 MiB, and one record may be as large.
BATCH_BYTES: Final = 4 * 1024 * 1024
BESIDE_BYTES: Final = 8 * 1024 * 1024  # of record keys and headers

# The appliance keeps what a client made as it came: so it is compressed here, where that pays.
ZSTD_LEVEL: Final = 1
WORTH_IT: Final = 0.9

_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "headers": (MapType, ArrayType),
    "topic": (StringType,),
    "timestamp": (TimestampType,),
}


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns that a DataFrame to be written has."""

    names: frozenset[str]

    @classmethod
    def of(cls, schema: StructType) -> RowSchema:
        """Raises BadOptionError."""
        for field in schema.fields:
            kinds = _COLUMNS.get(field.name)
            is_known = kinds is not None and isinstance(field.dataType, kinds)
            if is_known and isinstance(field.dataType, ArrayType):
                pair = field.dataType.elementType
                is_known = isinstance(pair, StructType) and pair.names == PAIR.names
            if not is_known:
                raise BadOptionError(
                    f"column {field.name} of type {field.dataType.simpleString()}: written are "
                    "key and value (binary or string), headers (map of string to binary, or array "
                    "of struct<key: string, value: binary>), topic (string) and timestamp"
                )
        if "value" not in schema.names:
            raise BadOptionError("the column value is missing")
        return cls(frozenset(schema.names))


def record_batches(
    rows: RowSchema, batch: pa.RecordBatch, now_us: int
) -> Iterator[tuple[bytes, int]]:
    """Record batches in the order of the rows, and a checksum of what the rows say. Records without
    a timestamp get `now_us`, and no timestamp of their batch is in its checksum."""
    at = 0
    while at < batch.num_rows:
        count = _fits(rows, batch.slice(at, BATCH_RECORDS))
        part = batch.slice(at, count)
        plain = formats.encode(_columns(rows, part, now_us), base_offset=0, created_us=0)
        skipped = formats.HEADER_BYTES + (0 if _are_timed(rows, part) else 8 * count)
        yield packed_where_it_pays(plain), crc32c(memoryview(plain)[skipped:])
        at += count


def _are_timed(rows: RowSchema, part: pa.RecordBatch) -> bool:
    return "timestamp" in rows.names and not part.column("timestamp").null_count


def packed_where_it_pays(plain: bytes) -> bytes:
    """The record batch, compressed if that makes it smaller."""
    smaller = formats.compress(plain, ZSTD_LEVEL)
    return smaller if len(smaller) < len(plain) * WORTH_IT else plain


def _bytes_of(column: pa.Array) -> pa.Array:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _fits(rows: RowSchema, part: pa.RecordBatch) -> int:
    """How many of these rows go into one record batch."""
    part = part.slice(0, _within(part.num_rows, [part.column("value")], BATCH_BYTES))
    beside = [part.column(name) for name in ("key", "headers") if name in rows.names]
    return _within(part.num_rows, beside, BESIDE_BYTES)


def _within(count: int, columns: list[pa.Array], most: int) -> int:
    """How many of `count` rows, but one at least, have at most so many bytes in these columns."""
    if sum(column.nbytes for column in columns) <= most:
        return count
    total = 0
    for i, lengths in enumerate(zip(*map(_lengths, columns), strict=True)):
        total += sum(lengths)
        if total > most:
            return max(1, i)
    return count


def _lengths(column: pa.Array) -> list[int]:
    """Of each row, in bytes."""
    if not pa.types.is_nested(column.type):
        found: list[int] = pc.fill_null(pc.binary_length(column), 0).to_pylist()
        return found
    return [len(item) for item in _packed_rows(column)]


def _columns(rows: RowSchema, part: pa.RecordBatch, now_us: int) -> Columns:
    keys = headers = None
    if "key" in rows.names:
        column = _bytes_of(part.column("key"))
        keys = None if column.null_count == len(column) else _binary(column)
    if "headers" in rows.names:
        headers = _packed(part.column("headers"))
    return Columns(
        _timestamps(rows, part, now_us), _binary(_bytes_of(part.column("value"))), keys, headers
    )


def _timestamps(rows: RowSchema, part: pa.RecordBatch, now_us: int) -> memoryview:
    if "timestamp" not in rows.names:
        return memoryview(int64s([now_us]) * part.num_rows)
    column = part.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    column = pc.fill_null(column, now_us)
    data = column.buffers()[1]
    return memoryview(data)[8 * column.offset : 8 * (column.offset + len(column))].cast("q")


def _binary(column: pa.Array) -> BinaryColumn:
    """The array's own buffers, begun at its first item; a null has no bytes."""
    if column.null_count:
        return BinaryColumn.of(column.to_pylist())
    _, starts_buffer, data = column.buffers()
    starts = memoryview(starts_buffer).cast("i")[column.offset : column.offset + len(column) + 1]
    first, last = starts[0], starts[-1]
    view = memoryview(data)[first:last] if data is not None else memoryview(b"")
    if first:
        numbers = [None, starts_buffer]
        absolute = pa.Array.from_buffers(pa.int32(), len(starts), numbers, offset=column.offset)
        starts = memoryview(pc.subtract(absolute, pa.scalar(first, pa.int32())).buffers()[1])
        starts = starts.cast("i")
    return BinaryColumn(starts, view)


def _packed(column: pa.Array) -> BinaryColumn | None:
    """Headers as they are stored, nothing for none."""
    packed = _packed_rows(column)
    return BinaryColumn.of(packed) if any(packed) else None


def _packed_rows(column: pa.Array) -> list[bytes]:
    """A null of a map is left out."""
    is_map = pa.types.is_map(column.type)
    packed = []
    for row in column.to_pylist():
        pairs = row or [] if is_map else [(one["key"], one["value"]) for one in row or ()]
        packed.append(
            packed_of(
                (name, value.encode() if isinstance(value, str) else value)
                for name, value in pairs
                if value is not None or not is_map
            )
        )
    return packed


# Of a batch, inflated: it is unpacked whole for the one record that is asked for.
SEGMENT_BATCH_BYTES: Final = 256 * limits.KIB
SEGMENT_BATCH_RECORDS: Final = 65_536
_OF_A_RECORD_BYTES: Final = 24  # beside key, value and headers


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """What a segment answers for: offsets of a topic from base to last, both inclusive."""

    topic_id: int
    bucket_id: bytes
    base_offset: int
    last_offset: int


def stored_bytes(records: pa.RecordBatch) -> pa.Array:
    """About how many bytes each of the records (of STORED_SCHEMA) takes."""
    total = pa.scalar(_OF_A_RECORD_BYTES, pa.int64())
    for name in ("key", "value", "packed"):
        total = pc.add(total, pc.fill_null(pc.binary_length(records.column(name)), 0))
    return total


def segment_of(place: SegmentPlace, records: pa.RecordBatch) -> bytes:
    """The object. `records`: of STORED_SCHEMA, at least one, in the order of their offsets, all of
    which the place has."""
    head = segment.header(place.topic_id, place.base_offset, place.last_offset)
    parts, sections = [head], []
    at, base = len(head), place.base_offset
    pending: list[bytes] = []
    cuts = _cuts(records)
    for i, (begin, end) in enumerate(cuts):
        is_last = i == len(cuts) - 1
        part = records.slice(begin, end - begin)
        last = place.last_offset if is_last else part.column("offset")[-1].as_py()
        pending.append(_batch(part, base, last))
        base = last + 1
        if is_last or sum(map(len, pending)) >= limits.SEGMENT_SECTION_BYTES:
            made = _section(place.topic_id, pending, at)
            sections.append(made)
            parts += pending
            at += made.length
            pending = []
    return b"".join((*parts, segment.trailer(head, sections, place.bucket_id)))


def _cuts(records: pa.RecordBatch) -> list[tuple[int, int]]:
    """Where the batches begin and end among the records."""
    before = pc.cumulative_sum(stored_bytes(records)).to_pylist()
    cuts, begin, floor = [], 0, 0
    for i, total in enumerate(before):
        if i > begin and (
            total - floor > SEGMENT_BATCH_BYTES or i - begin == SEGMENT_BATCH_RECORDS
        ):
            cuts.append((begin, i))
            begin, floor = i, before[i - 1]
    return [*cuts, (begin, len(before))]


def _batch(records: pa.RecordBatch, base_offset: int, last_offset: int) -> bytes:
    keys, packed = records.column("key"), records.column("packed")
    offsets = records.column("offset").to_pylist()
    has_gaps = last_offset - base_offset + 1 != len(offsets)
    columns = Columns(
        _numbers(records.column("timestamp")),
        BinaryColumn.of(records.column("value").to_pylist()),
        None if keys.null_count == len(keys) else BinaryColumn.of(keys.to_pylist()),
        BinaryColumn.of([item or b"" for item in packed.to_pylist()])
        if pc.any(pc.greater(pc.fill_null(pc.binary_length(packed), 0), 0)).as_py()
        else None,
        _numbers(records.column("offset")) if has_gaps else None,
    )
    return packed_where_it_pays(
        formats.encode(
            columns,
            base_offset=base_offset,
            last_offset=last_offset,
            created_us=pc.max(records.column("created")).as_py(),
        )
    )


def _numbers(column: pa.Array) -> memoryview:
    data = memoryview(column.buffers()[1]).cast("B")
    return data[8 * column.offset : 8 * (column.offset + len(column))].cast("q")


def _section(topic_id: int, batches: list[bytes], at: int) -> StoredSection:
    headers = [formats.read_header(each) for each in batches]
    data = b"".join(batches)
    return StoredSection(
        topic_id,
        headers[0].base_offset,
        headers[-1].last_offset,
        sum(header.count for header in headers),
        at,
        len(data),
        crc32c(data),
        max(header.created_us for header in headers),
        max(header.largest_timestamp_us for header in headers),
    )

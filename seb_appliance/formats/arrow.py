"""Stored columns as Arrow's columns: the buffers are wrapped, not copied.

Only this file and those who import it need pyarrow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, Final

import msgspec
import pyarrow as pa

from seb_appliance import zstd
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch as formats
from seb_appliance.formats.batch import AnyBatch, Batch, BatchHeader
from seb_appliance.formats.columns import BinaryColumn, Bytes, int64s

# `headers` is an empty map where a record has none.
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.map_(pa.string(), pa.binary()), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)

_decode_headers: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode
_zstd: Final = pa.Codec("zstd")


def decode(buffer: Bytes, at: int, header: BatchHeader) -> Batch:
    """As `formats.batch.decode`, for `record_batch` alone, in less than half of its time: Arrow
    inflates into memory that it has already, and checks the starts. Whether timestamps agree with
    the header is not checked."""
    stored = formats.stored_body(buffer, at, header)
    body = _inflated(stored, header.inflated_bytes) if header.flags & formats.ZSTD else stored
    has_headers = bool(header.flags & formats.HEADERS)  # they are cut into items here
    return Batch(header, formats.read_columns(body, header, lists=has_headers))


def _inflated(stored: memoryview, inflated_bytes: int) -> memoryview:
    try:
        if zstd.get_frame_info(stored).decompressed_size == inflated_bytes:
            return memoryview(_zstd.decompress(stored, inflated_bytes))
    except (zstd.ZstdError, pa.ArrowException, OSError) as error:
        raise BadBatchError(f"the body is not a zstd frame: {error}") from error
    # Arrow does not say how much it wrote, and would give out memory that was not written.
    return memoryview(formats.inflate(stored, inflated_bytes))


def record_batch(batch: AnyBatch, topic: str, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """All records of a stored batch. `schema`: names of columns as in `SCHEMA`, perhaps fewer; and
    `packed`, the headers as they are stored, and `created` of the batch, in us, if they are
    named. Raises BadBatchError."""
    columns, count = batch.columns, batch.header.count
    make: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "key": lambda _: _binary(columns.keys, count),
        "value": lambda _: _binary(columns.values, count),
        "topic": lambda _: pa.repeat(pa.scalar(topic), count),
        "offset": lambda _: _offsets(batch),
        "timestamp": lambda kind: _int64s(columns.timestamps_us, count, kind),
        "headers": lambda kind: _headers(columns.headers, count, kind),
        "packed": lambda _: _binary(columns.headers, count),
        "created": lambda kind: pa.repeat(pa.scalar(batch.header.created_us, kind), count),
    }
    made = [make[one.name](one.type) for one in schema]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def sliced(whole: pa.RecordBatch, batch: AnyBatch, start: int, end: int) -> pa.RecordBatch:
    """Of a batch's records those with start ≤ offset < end."""
    header = batch.header
    if header.base_offset >= start and header.last_offset < end:
        return whole
    offsets = batch.offsets()
    first = bisect_left(offsets, start)
    return whole.slice(first, bisect_left(offsets, end) - first)


def _buffer(data: Any) -> pa.Buffer:
    return pa.py_buffer(memoryview(data).cast("B") if len(data) else b"")


def _binary(column: BinaryColumn | None, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, pa.binary())
    valid = None if column.valid is None else _buffer(column.valid)
    buffers = [valid, _buffer(column.starts), _buffer(column.data)]
    made = pa.Array.from_buffers(pa.binary(), count, buffers)
    try:
        made.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadBatchError(f"the starts of a column decrease: {error}") from error
    return made


def _int64s(numbers: Any, count: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, _buffer(numbers)])


def _offsets(batch: AnyBatch) -> pa.Array:
    if batch.columns.offsets is not None:
        return _int64s(batch.columns.offsets, batch.header.count, pa.int64())
    base, count = batch.header.base_offset, batch.header.count
    if not hasattr(pa, "arange"):  # before pyarrow 21
        return _int64s(int64s(range(base, base + count)), count, pa.int64())
    return pa.arange(base, base + count)


def _headers(column: BinaryColumn | None, count: int, kind: pa.DataType) -> pa.Array:
    maps: list[dict[str, bytes]] = []
    starts = pa.py_buffer(bytes(4 * (count + 1)))
    if column is not None:
        maps = [_decode_headers(item) if item else {} for item in column.slice()]
        starts = pa.array(accumulate(map(len, maps), initial=0), pa.int32()).buffers()[1]
    names = pa.array([name for record in maps for name in record], kind.key_type)
    values = pa.array([value for record in maps for value in record.values()], kind.item_type)
    pairs = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    # MapArray.from_arrays takes a type only since pyarrow 15.
    return pa.Array.from_buffers(kind, count, [None, starts], children=[pairs])


# --- messages of an Arrow stream: they follow each other, and eight bytes end it ---


def encoded_schema() -> bytes:
    """The first message."""
    return bytes(SCHEMA.serialize())


def encoded_batch(topic: str, pieces: Iterable[tuple[AnyBatch, int, int]]) -> bytes:
    """One message with records begin ≤ i < end of stored batches (one or more)."""
    parts = [record_batch(batch, topic).slice(begin, end - begin) for batch, begin, end in pieces]
    joined = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    return bytes(joined.serialize())

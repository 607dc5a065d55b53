"""Segments made of records: the bytes of a whole object, as docs/FORMAT.md has it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from pyspark_seb.columns import packed_where_it_pays
from seb_appliance import limits
from seb_appliance.formats import batch as formats
from seb_appliance.formats import segment
from seb_appliance.formats.columns import BinaryColumn, Columns
from seb_appliance.formats.operations import StoredSection

# Of a batch, inflated: it is unpacked whole for the one record that is asked for.
BATCH_BYTES: Final = 256 * limits.KIB
BATCH_RECORDS: Final = 65_536
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
        if i > begin and (total - floor > BATCH_BYTES or i - begin == BATCH_RECORDS):
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

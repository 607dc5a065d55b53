"""Columns of records for property tests, and batches with a field or the body changed."""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c
from hypothesis import strategies as st
from msgspec.structs import replace

from seb_appliance.formats import batch, segment
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s, pad8

MICROSECONDS = st.integers(0, 2**53)
# Not st.text(): building its table of Unicode takes seconds in a fresh clone.
HEADERS = st.dictionaries(st.text("ab-é", max_size=8), st.binary(max_size=8), max_size=3)


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    """One to twenty records with any mix of optional columns."""
    count = draw(st.integers(1, 20))

    def many(item: st.SearchStrategy) -> list:
        return draw(st.lists(item, min_size=count, max_size=count))

    value = st.binary(max_size=40)
    nullable = st.none() | value
    offsets = None
    if draw(st.booleans()):
        gaps = many(st.integers(1, 5))
        offsets = int64s(sum(gaps[: i + 1]) for i in range(count))
    return Columns(
        timestamps_us=int64s(many(MICROSECONDS)),
        values=BinaryColumn.of(many(nullable if draw(st.booleans()) else value)),
        keys=BinaryColumn.of(many(nullable)) if draw(st.booleans()) else None,
        headers=BinaryColumn.of([msgspec.msgpack.encode(h) for h in many(HEADERS)])
        if draw(st.booleans())
        else None,
        offsets=offsets,
    )


def plain(*values: bytes | None) -> Columns:
    return Columns(int64s([7] * len(values)), BinaryColumn.of(values))


def with_header(data: bytes, **changes: int) -> bytes:
    """The same batch with header fields changed, and a header CRC that agrees."""
    header = replace(batch.read_header(data), **changes)
    return header.pack() + data[batch.HEADER_BYTES :]


def with_body(data: bytes, body: bytes, **changes: int) -> bytes:
    """Another body under the header of `data`: lengths and both CRCs agree."""
    lengths = {"stored_bytes": len(body), "inflated_bytes": len(body), "body_crc": crc32c(body)}
    header = replace(batch.read_header(data), **{**lengths, **changes})
    return header.pack() + body + b"\0" * pad8(len(body))


def body_of(data: bytes) -> bytes:
    header = batch.read_header(data)
    return data[batch.HEADER_BYTES : batch.HEADER_BYTES + header.stored_bytes]


def recrc(data: bytearray) -> bytes:
    """The bytes with both CRCs of a batch made to agree, as far as it is long enough for them."""
    if len(data) >= batch.HEADER_BYTES:
        (stored,) = struct.unpack_from("<I", data, 56)
        body = data[batch.HEADER_BYTES : batch.HEADER_BYTES + stored]
        struct.pack_into("<I", data, 20, crc32c(bytes(body)))
        struct.pack_into("<I", data, 64, crc32c(bytes(data[:64])))
    return bytes(data)


def segment_recrc(data: bytearray) -> bytes:
    """A segment whose CRC agrees with its header and index, as far as it is long enough."""
    fixed_at = len(data) - segment.TRAILER_BYTES
    if fixed_at >= segment.HEADER_BYTES:
        (count,) = struct.unpack_from("<I", data, fixed_at + 40)
        rows_at = max(segment.HEADER_BYTES, fixed_at - count * segment.ROW_BYTES)
        struct.pack_into("<I", data, fixed_at + 44, 0)
        crc = crc32c(bytes(data[rows_at:]), crc32c(bytes(data[: segment.HEADER_BYTES])))
        struct.pack_into("<I", data, fixed_at + 44, crc)
    return bytes(data)

"""Record batch, version 2: a 72-byte header, then the columns of N records (docs/FORMAT.md).

Decoding wraps the stored buffers and copies nothing. Whatever the bytes are, a function here
either succeeds or raises `BadBatchError`, allocates at most the inflated length that the header
names (64 MiB at most), and ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec
from crc32c import crc32c

from seb_appliance import limits, zstd
from seb_appliance.errors import BadBatchError
from seb_appliance.formats.columns import (
    BinaryColumn,
    Bytes,
    Columns,
    Ints,
    all_present,
    pad8,
)

MAGIC: Final = b"seb!"
VERSION: Final = 2
HEADER_BYTES: Final = 72

KEYS: Final = 1
HEADERS: Final = 2
EXPLICIT_OFFSETS: Final = 4
NULL_VALUES: Final = 8
ZSTD: Final = 256
KNOWN_FLAGS: Final = KEYS | HEADERS | EXPLICIT_OFFSETS | NULL_VALUES | ZSTD

_HEADER = struct.Struct("<4shqIHIqqqqIIII")
_ONE_VALUE = struct.Struct("<qii")  # timestamp, and where the value starts and ends
_TIMESTAMP = struct.Struct("<q")
_HEADER_CRC_AT: Final = 64
_CRC = struct.Struct("<I")
_ZSTD_WINDOW_LOG_MAX: Final = 27  # 128 MiB: no frame makes the decoder allocate more

assert _HEADER.size == HEADER_BYTES


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of a batch. Times in µs since the epoch, lengths in bytes, last inclusive."""

    created_us: int
    count: int
    flags: int
    body_crc: int
    base_offset: int
    last_offset: int
    smallest_timestamp_us: int
    largest_timestamp_us: int
    stored_bytes: int
    inflated_bytes: int

    @property
    def total_bytes(self) -> int:
        """Header, stored body and the zeros after it."""
        return HEADER_BYTES + self.stored_bytes + pad8(self.stored_bytes)

    def pack(self) -> bytes:
        fields = _HEADER.pack(
            MAGIC,
            VERSION,
            self.created_us,
            self.count,
            self.flags,
            self.body_crc,
            self.base_offset,
            self.last_offset,
            self.smallest_timestamp_us,
            self.largest_timestamp_us,
            self.stored_bytes,
            self.inflated_bytes,
            0,
            0,
        )
        crc = crc32c(fields[:_HEADER_CRC_AT])
        return fields[:_HEADER_CRC_AT] + _CRC.pack(crc) + fields[_HEADER_CRC_AT + 4 :]


class Batch(msgspec.Struct, frozen=True):
    header: BatchHeader
    columns: Columns

    def offsets(self) -> Ints | range:
        """The offset of each record."""
        if self.columns.offsets is not None:
            return self.columns.offsets
        return range(self.header.base_offset, self.header.base_offset + self.header.count)


class Undecoded:
    """In place of a Batch whose offsets have no gaps: columns are decoded whenever they are asked
    for, which raises BadBatchError."""

    __slots__ = ("_stored", "header")

    def __init__(self, header: BatchHeader, stored: Bytes) -> None:
        assert not header.flags & EXPLICIT_OFFSETS, header
        self.header = header
        self._stored = stored

    @property
    def columns(self) -> Columns:
        return decode(self._stored, 0, self.header).columns

    def offsets(self) -> range:
        return range(self.header.base_offset, self.header.base_offset + self.header.count)

    @property
    def items_bytes(self) -> int:
        """About how many bytes values, keys and headers have: a few too many for padding."""
        count, flags = self.header.count, self.header.flags
        maps = bool(flags & NULL_VALUES) + bool(flags & KEYS)
        columns = 1 + bool(flags & KEYS) + bool(flags & HEADERS)
        beside = 8 * count + maps * ((count + 7) // 8) + columns * 4 * (count + 1)
        return max(0, self.header.inflated_bytes - beside)


AnyBatch: TypeAlias = Batch | Undecoded


def encode(
    columns: Columns,
    *,
    base_offset: int,
    created_us: int,
    last_offset: int | None = None,
    zstd_level: int | None = None,
) -> bytes:
    """The bytes of one batch, padded to a multiple of 8.

    `last_offset` is the end of the range the batch answers for; None means base + N - 1.
    """
    count = len(columns)
    assert 1 <= count <= limits.BATCH_RECORDS_MAX, count
    assert len(columns.values) == count, (len(columns.values), count)
    flags = 0
    parts: list[Bytes] = [memoryview(columns.timestamps_us).cast("B")]
    if columns.offsets is not None:
        flags |= EXPLICIT_OFFSETS
        parts.append(memoryview(columns.offsets).cast("B"))
    if columns.values.valid is not None:
        flags |= NULL_VALUES
        parts += _padded(columns.values.valid)
    parts += _binary_parts(columns.values)
    if columns.keys is not None:
        flags |= KEYS
        assert len(columns.keys) == count, (len(columns.keys), count)
        parts += _padded(columns.keys.valid or b"\xff" * ((count + 7) // 8))
        parts += _binary_parts(columns.keys)
    if columns.headers is not None:
        flags |= HEADERS
        assert len(columns.headers) == count, (len(columns.headers), count)
        parts += _binary_parts(columns.headers)
    body = b"".join(parts)
    timestamps = columns.timestamps_us.tolist()
    header = BatchHeader(
        created_us=created_us,
        count=count,
        flags=flags,
        body_crc=crc32c(body),
        base_offset=base_offset,
        last_offset=base_offset + count - 1 if last_offset is None else last_offset,
        smallest_timestamp_us=min(timestamps),
        largest_timestamp_us=max(timestamps),
        stored_bytes=len(body),
        inflated_bytes=len(body),
    )
    plain = b"".join((header.pack(), body, b"\0" * pad8(len(body))))
    return plain if zstd_level is None else compress(plain, zstd_level)


def encode_value(value: bytes, timestamp_us: int, *, base_offset: int, created_us: int) -> bytes:
    """As `encode` of one record that is nothing but its value: a log of many topics with little in
    each is made of these."""
    starts = _ONE_VALUE.pack(timestamp_us, 0, len(value))
    padding = b"\0" * pad8(len(value))
    stored_bytes = len(starts) + len(value) + len(padding)
    header = BatchHeader(
        created_us=created_us,
        count=1,
        flags=0,
        body_crc=crc32c(padding, crc32c(value, crc32c(starts))),
        base_offset=base_offset,
        last_offset=base_offset,
        smallest_timestamp_us=timestamp_us,
        largest_timestamp_us=timestamp_us,
        stored_bytes=stored_bytes,
        inflated_bytes=stored_bytes,
    )
    return b"".join((header.pack(), starts, value, padding))


def compress(plain: bytes, zstd_level: int) -> bytes:
    """The batch `plain`, which is not compressed, with its body in one zstd frame."""
    header = read_header(plain)
    assert not header.flags & ZSTD, header
    body = zstd.compress(memoryview(plain)[HEADER_BYTES:][: header.stored_bytes], level=zstd_level)
    smaller = msgspec.structs.replace(
        header, flags=header.flags | ZSTD, body_crc=crc32c(body), stored_bytes=len(body)
    )
    return b"".join((smaller.pack(), body, b"\0" * pad8(len(body))))


def restamp(header: BatchHeader, *, base_offset: int, created_us: int) -> bytes:
    """The 72 header bytes of the same body at another place; the body is not hashed again."""
    return BatchHeader(
        created_us=created_us,
        count=header.count,
        flags=header.flags,
        body_crc=header.body_crc,
        base_offset=base_offset,
        last_offset=base_offset + header.last_offset - header.base_offset,
        smallest_timestamp_us=header.smallest_timestamp_us,
        largest_timestamp_us=header.largest_timestamp_us,
        stored_bytes=header.stored_bytes,
        inflated_bytes=header.inflated_bytes,
    ).pack()


def read_header(buffer: Bytes, at: int = 0) -> BatchHeader:
    """The checked header at `at`; the whole batch lies inside `buffer`."""
    if len(buffer) - at < HEADER_BYTES:
        raise BadBatchError(f"{len(buffer) - at} bytes are left where a 72-byte header should be")
    (magic, version, *fields, header_crc, zero) = _HEADER.unpack_from(buffer, at)
    if magic != MAGIC:
        raise BadBatchError(f"a record batch begins with {MAGIC!r}, not with {magic!r}")
    if version != VERSION:
        raise BadBatchError(f"record batch version {version} is not known, only {VERSION}")
    if crc32c(memoryview(buffer)[at : at + _HEADER_CRC_AT]) != header_crc:
        raise BadBatchError("the CRC of the batch header does not agree")
    header = BatchHeader(*fields)
    if zero or header.flags & ~KNOWN_FLAGS:
        raise BadBatchError(f"unknown bits are set in the batch header (flags {header.flags:#x})")
    if not 1 <= header.count <= limits.BATCH_RECORDS_MAX:
        raise BadBatchError(f"a batch of {header.count} records")
    if header.inflated_bytes > limits.BATCH_BODY_BYTES_MAX:
        raise BadBatchError(f"a body of {header.inflated_bytes} bytes; at most 64 MiB are allowed")
    if not header.flags & ZSTD and header.inflated_bytes != header.stored_bytes:
        raise BadBatchError("stored and inflated length of a plain body differ")
    if header.total_bytes > len(buffer) - at:
        raise BadBatchError(
            f"the batch says {header.total_bytes} bytes, {len(buffer) - at} are there"
        )
    if not 0 <= header.base_offset <= header.last_offset <= limits.OFFSET_MAX:
        raise BadBatchError(f"offsets {header.base_offset} to {header.last_offset}")
    if header.last_offset - header.base_offset + 1 < header.count:
        raise BadBatchError("more records than offsets")
    if not header.flags & EXPLICIT_OFFSETS and (
        header.last_offset - header.base_offset + 1 != header.count
    ):
        raise BadBatchError("offsets with gaps need their own column")
    return header


def walk(buffer: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch of a buffer that holds batches back to back."""
    at = 0
    while at < len(buffer):
        header = read_header(buffer, at)
        yield at, header
        at += header.total_bytes


def decode(buffer: Bytes, at: int = 0, header: BatchHeader | None = None) -> Batch:
    """The batch at `at`, every column checked; wrapped in place unless it is compressed.
    `header`: what `read_header` gave for it, if that was asked already."""
    if header is None:
        header = read_header(buffer, at)
    stored = stored_body(buffer, at, header)
    body = memoryview(inflate(stored, header.inflated_bytes)) if header.flags & ZSTD else stored
    columns = read_columns(body, header)
    if not _holds_timestamps(header, memoryview(columns.timestamps_us)):
        raise BadBatchError("smallest and largest timestamp do not agree with the column")
    return Batch(header, columns)


def _holds_timestamps(header: BatchHeader, timestamps_us: memoryview) -> bool:
    smallest, largest = header.smallest_timestamp_us, header.largest_timestamp_us
    if smallest == largest:  # as when the appliance set them: no integers are made
        return timestamps_us.tobytes() == _TIMESTAMP.pack(smallest) * len(timestamps_us)
    listed = timestamps_us.tolist()
    return min(listed) == smallest and max(listed) == largest


def stored_body(buffer: Bytes, at: int, header: BatchHeader) -> memoryview:
    """The body of the batch at `at` as it is stored, perhaps compressed. Its CRC agrees."""
    stored = memoryview(buffer)[at + HEADER_BYTES : at + HEADER_BYTES + header.stored_bytes]
    if crc32c(stored) != header.body_crc:
        raise BadBatchError("the CRC of the batch body does not agree")
    return stored


def _padded(part: Bytes) -> list[Bytes]:
    return [part, b"\0" * pad8(len(part))]


def _binary_parts(column: BinaryColumn) -> list[Bytes]:
    starts = memoryview(column.starts).cast("B")
    return [*_padded(starts), *_padded(column.data)]


def inflate(stored: Bytes, inflated_bytes: int) -> bytes:
    """A body that is one zstd frame."""
    options = {int(zstd.DecompressionParameter.window_log_max): _ZSTD_WINDOW_LOG_MAX}
    inflater = zstd.ZstdDecompressor(options=options)
    try:
        body = inflater.decompress(stored, max_length=inflated_bytes + 1)
    except zstd.ZstdError as error:
        raise BadBatchError(f"the body is not a zstd frame: {error}") from error
    if len(body) != inflated_bytes or not inflater.eof or inflater.unused_data:
        raise BadBatchError(f"the body does not inflate to the {inflated_bytes} bytes it names")
    return body


class _Cursor:
    """Takes column after column from a body, each on a multiple of 8."""

    def __init__(self, body: memoryview, count: int, *, lists: bool) -> None:
        self.body = body
        self.count = count
        self.at = 0
        self._lists = lists

    def take(self, length: int, what: str) -> memoryview:
        if length > len(self.body) - self.at:
            raise BadBatchError(f"the body ends inside its {what}")
        part = self.body[self.at : self.at + length]
        self.at = min(self.at + length + pad8(length), len(self.body))
        return part

    def int64s(self, what: str) -> memoryview:
        return self.take(8 * self.count, what).cast("q")

    def bitmap(self, what: str) -> memoryview:
        return self.take((self.count + 7) // 8, what)

    def binary(self, what: str, valid: memoryview | None) -> BinaryColumn:
        starts = self.take(4 * (self.count + 1), what).cast("i")
        if not self._lists:
            if starts[0] or starts[-1] < 0:
                raise BadBatchError(f"the starts of the {what} decrease")
            return BinaryColumn(starts, self.take(starts[-1], what), valid)
        listed = starts.tolist()
        if listed[0] != 0 or listed != sorted(listed):
            raise BadBatchError(f"the starts of the {what} decrease")
        data = self.take(listed[-1], what)
        if valid is None or all_present(valid, self.count):
            return BinaryColumn(starts, data)
        column = BinaryColumn(starts, data, valid)
        if any(listed[i] != listed[i + 1] and column.is_null(i) for i in range(self.count)):
            raise BadBatchError(f"a null in the {what} has bytes")
        return column


def read_columns(body: memoryview, header: BatchHeader, *, lists: bool = True) -> Columns:
    """`lists`: whether starts are checked item by item, and nulls to have no bytes. Without that,
    the lengths of items are not to be trusted: only the sum of each column's lies in the body."""
    cursor = _Cursor(body, header.count, lists=lists)
    timestamps_us = cursor.int64s("timestamps")
    offsets = None
    if header.flags & EXPLICIT_OFFSETS:
        offsets = cursor.int64s("offsets")
        listed = offsets.tolist()
        if listed != sorted(set(listed)):
            raise BadBatchError("the offsets do not increase")
        if listed[0] < header.base_offset or listed[-1] > header.last_offset:
            raise BadBatchError("an offset lies outside the batch's range")
    values_valid = cursor.bitmap("values") if header.flags & NULL_VALUES else None
    values = cursor.binary("values", values_valid)
    keys = cursor.binary("keys", cursor.bitmap("keys")) if header.flags & KEYS else None
    headers = cursor.binary("headers", None) if header.flags & HEADERS else None
    if cursor.at != len(body):
        raise BadBatchError(f"{len(body) - cursor.at} bytes follow the last column")
    return Columns(timestamps_us, values, keys, headers, offsets)

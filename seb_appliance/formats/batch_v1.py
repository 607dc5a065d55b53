"""Record batch, version 1, as the Go broker writes it (docs/FORMAT.md): read, converted to version
2, and written for an export.

A 32-byte header, one uint32 start per record, then the data. In a bucket the whole file is one
gzip stream; in the Go broker's local cache it is plain. Both are accepted.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Bytes, Columns, pad8

MAGIC: Final = b"seb!"
VERSION: Final = 1
GZIP_MAGIC: Final = b"\x1f\x8b"
# As Go's library writes it: no name, year 1 cut to 32 bits as the time, no known system.
GZIP_HEADER: Final = bytes.fromhex("1f8b0800 00096e88 00ff")
_HEADER = struct.Struct("<4shqI14s")
_GZIP_TRAILER = struct.Struct("<II")  # CRC-32 and length of what was compressed
_BEGINNING: Final = MAGIC + VERSION.to_bytes(2, "little")
_NOTHING: Final = bytes(14)


@dataclass(frozen=True, slots=True)
class BatchV1:
    """`created_us`: when the Go broker wrote this copy, µs since the epoch. Values only: version 1
    knows no record keys, headers or timestamps."""

    created_us: int
    values: BinaryColumn


def is_version_1(stored: Bytes) -> bool:
    """Whether these bytes begin as a version 1 file does, which no batch of version 2 does."""
    return stored[:2] == GZIP_MAGIC or stored[:6] == _BEGINNING


def decode(stored: bytes) -> BatchV1:
    """The records of one file, or BadBatchError."""
    data = inflate(stored)
    if len(data) < _HEADER.size:
        raise BadBatchError(f"{len(data)} bytes are too few for a version 1 batch")
    magic, version, created_us, count, reserved = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise BadBatchError(f"not a version 1 batch: magic {magic!r}, version {version}")
    if reserved != _NOTHING:
        raise BadBatchError("the reserved bytes of the header are not zero")
    data_at = _HEADER.size + 4 * count
    if count > limits.BATCH_RECORDS_MAX or data_at > len(data):
        raise BadBatchError(f"the index of {count} records does not fit {len(data)} bytes")
    starts = memoryview(data)[_HEADER.size : data_at].cast("I").tolist()
    starts.append(len(data) - data_at)
    if starts[0] != 0 or starts != sorted(starts):
        raise BadBatchError("the starts of the records decrease or leave the file")
    return BatchV1(created_us, BinaryColumn(array("i", starts), memoryview(data)[data_at:]))


def inflate(stored: bytes) -> bytes | bytearray:
    """The plain file. Raises BadBatchError."""
    return _gunzip(stored) if stored[:2] == GZIP_MAGIC else stored


def check_records(found: BatchV1) -> None:
    """Raises BadBatchError for a file without records, with a time before 1970, or too long for a
    batch of version 2."""
    count = len(found.values)
    if not 1 <= count <= limits.BATCH_RECORDS_MAX:
        raise BadBatchError(f"a file of {count} records")
    if not 0 <= found.created_us <= limits.OFFSET_MAX:
        raise BadBatchError(f"it says that it was written {found.created_us} µs after 1970")
    data_bytes = len(found.values.data)
    body_bytes = 8 * count + 4 * (count + 1) + pad8(4 * (count + 1)) + data_bytes + pad8(data_bytes)
    if body_bytes > limits.BATCH_BODY_BYTES_MAX:
        raise BadBatchError(f"its {count} records have more than 64 MiB")


def as_version_2(stored: bytes, base_offset: int) -> bytes:
    """The same records as one plain batch of version 2, each with the file's time as its timestamp.
    Raises BadBatchError."""
    found = decode(stored)
    check_records(found)
    timestamps_us = array("q", [found.created_us]) * len(found.values)
    return batch.encode(
        Columns(timestamps_us, found.values), base_offset=base_offset, created_us=found.created_us
    )


def encode(values: Sequence[bytes], created_us: int) -> bytes:
    """One file of these records, plain, as it lies in the Go broker's cache."""
    *starts, _ = accumulate(map(len, values), initial=0)
    header = _HEADER.pack(MAGIC, VERSION, created_us, len(values), _NOTHING)
    return b"".join((header, array("I", starts).tobytes(), *values))


def compress(plain: bytes) -> bytes:
    """The file `plain` as it lies in a bucket."""
    deflater = zlib.compressobj(wbits=-15)
    body = deflater.compress(plain) + deflater.flush()
    return b"".join((GZIP_HEADER, body, _GZIP_TRAILER.pack(zlib.crc32(plain), len(plain))))


def _gunzip(stored: bytes) -> bytearray:
    """In steps: all at once would take twice the memory."""
    inflater = zlib.decompressobj(wbits=31)
    data, rest, part = bytearray(), stored, b"x"
    try:
        while part and len(data) <= limits.BATCH_BODY_BYTES_MAX:
            part = inflater.decompress(rest, limits.MIB)
            rest = inflater.unconsumed_tail
            data += part
    except zlib.error as error:
        raise BadBatchError(f"not a gzip stream: {error}") from error
    if len(data) > limits.BATCH_BODY_BYTES_MAX:
        raise BadBatchError("the file inflates to more than 64 MiB")
    if not inflater.eof or inflater.unused_data:
        raise BadBatchError("the gzip stream is cut short, or bytes follow it")
    return data

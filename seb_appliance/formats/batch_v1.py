"""Record batch, version 1, as the Go broker writes it: reading only (docs/FORMAT.md).

A 32-byte header, one uint32 start per record, then the data. In a bucket the whole file is one
gzip stream; in the Go broker's local cache it is plain. Both are accepted.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats.columns import BinaryColumn

MAGIC: Final = b"seb!"
VERSION: Final = 1
GZIP_MAGIC: Final = b"\x1f\x8b"
_HEADER = struct.Struct("<4shqI14s")


@dataclass(frozen=True, slots=True)
class BatchV1:
    """`created_us`: when the Go broker wrote this copy, µs since the epoch. Values only: version 1
    knows no record keys, headers or timestamps."""

    created_us: int
    values: BinaryColumn


def decode(stored: bytes) -> BatchV1:
    """The records of one file, or BadBatchError."""
    data = _gunzip(stored) if stored[:2] == GZIP_MAGIC else stored
    if len(data) < _HEADER.size:
        raise BadBatchError(f"{len(data)} bytes are too few for a version 1 batch")
    magic, version, created_us, count, _reserved = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise BadBatchError(f"not a version 1 batch: magic {magic!r}, version {version}")
    data_at = _HEADER.size + 4 * count
    if count > limits.BATCH_RECORDS_MAX or data_at > len(data):
        raise BadBatchError(f"the index of {count} records does not fit {len(data)} bytes")
    starts = memoryview(data)[_HEADER.size : data_at].cast("I").tolist()
    starts.append(len(data) - data_at)
    if starts[0] != 0 or starts != sorted(starts):
        raise BadBatchError("the starts of the records decrease or leave the file")
    return BatchV1(created_us, BinaryColumn(array("i", starts), memoryview(data)[data_at:]))


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

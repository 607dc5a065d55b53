"""Record sets for tests, made without the code that they test."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

with warnings.catch_warnings():  # its package reads files in an old way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords
    from kafka.record.default_records import DefaultRecordBatchBuilder

__all__ = ["MemoryRecords", "Sent", "changed", "made", "with_body", "with_crc"]

T_MS = 1_700_000_000_000
CRC_AT, ATTRIBUTES_AT, RECORDS_AT = 17, 21, 61

Header = tuple[bytes, bytes | None]


class Sent(NamedTuple):
    value: bytes | None = b"v"
    key: bytes | None = None
    headers: Sequence[Header] = ()
    time_ms: int = T_MS


class _Builder(DefaultRecordBatchBuilder):
    """Header names are any bytes."""

    def append(self, offset: int, record: Sent) -> None:
        class Name(bytes):
            def encode(self, _: str) -> bytes:
                return self

        headers = [(Name(name), value) for name, value in record.headers]
        super().append(offset, record.time_ms, record.key, record.value, headers)


def made(
    *records: Sent, codec: int = 0, producer: tuple[int, int, int] = (-1, -1, -1), in_txn: int = 0
) -> bytes:
    """One batch, by kafka-python. `producer`: id, epoch, base sequence."""
    builder = _Builder(2, codec, in_txn, *producer, 1 << 30)
    for offset, record in enumerate(records):
        builder.append(offset, record)
    return bytes(builder.build())


def with_crc(batch: bytes) -> bytes:
    """The batch with its CRC made to agree."""
    crc = struct.pack(">I", crc32c(batch[ATTRIBUTES_AT:]))
    return batch[:CRC_AT] + crc + batch[ATTRIBUTES_AT:]


def changed(batch: bytes, at: int, layout: str, number: int) -> bytes:
    """The batch with another number at `at`, and with a CRC that agrees."""
    new = bytearray(batch)
    struct.pack_into(layout, new, at, number)
    return with_crc(bytes(new))


def with_body(batch: bytes, body: bytes, codec: int) -> bytes:
    """The batch with other bytes for its records."""
    head = bytearray(batch[:RECORDS_AT])
    struct.pack_into(">i", head, 8, RECORDS_AT - 12 + len(body))
    struct.pack_into(">h", head, ATTRIBUTES_AT, codec)
    return with_crc(bytes(head) + body)

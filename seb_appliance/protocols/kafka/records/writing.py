"""Stored records become record batches for a consumer: uncompressed, timestamps as made (ms)."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.broker.values import BatchSlice
from seb_appliance.formats.batch import AnyBatch
from seb_appliance.protocols.kafka.records.headers import NO_HEADERS, section_of
from seb_appliance.protocols.kafka.records.layout import (
    CRC_FROM,
    HEAD,
    HEAD_BYTES,
    LENGTH_FROM,
    MAGIC,
    VARINTS,
)

# A batch holds at most so much, beyond its first record: it is made in about a millisecond.
_BATCH_RECORDS: Final = 1_000
_BATCH_BYTES: Final = 512 * limits.KIB  # of values, and as much of record keys
_BATCH_HEADER_BYTES: Final = 16 * limits.KIB

_ANY: Final = 1 << 62  # bytes

_OFFSET_DELTA_MAX: Final = (1 << 31) - 1
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_NULL: Final = VARINTS[-1]
_NO_PRODUCER: Final = (-1, -1, -1)  # id, epoch, base sequence

assert _AFTER_CRC.size == HEAD_BYTES - CRC_FROM


def batches_of(
    slices: Iterable[BatchSlice], most_bytes: int | None = None, first_bytes: int | None = None
) -> Iterator[bytes]:
    """The records of `slices`, as record batches with the offsets and gaps of the log, one at a
    time: each takes about a millisecond (`tasks.in_slices`). `most_bytes`: of all together, or,
    where the first record alone is larger, that record if it has at most `first_bytes`. None: any
    number."""
    left_bytes = _ANY if most_bytes is None else most_bytes
    alone_bytes = _ANY if first_bytes is None else first_bytes
    for one in slices:
        begin = one.begin
        while begin < one.end:
            end = _end_of(one.batch, begin, one.end)
            packed = _packed(one.batch, begin, end)
            while len(packed) > left_bytes and end - begin > 1:
                # Sizes are known once they are packed: try the share of the records that may fit.
                end = begin + max(1, (end - begin) * left_bytes // len(packed))
                packed = _packed(one.batch, begin, end)
            if len(packed) > max(left_bytes, alone_bytes):
                return
            yield packed
            left_bytes -= len(packed)
            alone_bytes = 0
            begin = end


def _end_of(batch: AnyBatch, begin: int, end: int) -> int:
    """Where a batch of the records from `begin` on ends, at most `end`."""
    end = min(end, begin + _BATCH_RECORDS)
    columns = batch.columns
    for column, most_bytes in (
        (columns.values, _BATCH_BYTES),
        (columns.keys, _BATCH_BYTES),
        (columns.headers, _BATCH_HEADER_BYTES),
    ):
        if column is not None:
            most = column.starts[begin] + most_bytes
            end = min(end, bisect_right(column.starts, most, begin + 2, end + 1) - 1)
    if columns.offsets is not None:
        most = columns.offsets[begin] + _OFFSET_DELTA_MAX
        end = bisect_right(columns.offsets, most, begin, end)
    return end


def _packed(batch: AnyBatch, begin: int, end: int) -> bytes:
    """The record batch of the records begin ≤ i < end."""
    columns = batch.columns
    values = columns.values.slice(begin, end)
    keys = None if columns.keys is None else columns.keys.slice(begin, end)
    items = None if columns.headers is None else columns.headers.slice(begin, end)
    times_ms = [time_us // 1000 for time_us in columns.timestamps_us[begin:end].tolist()]
    deltas_ms = _counted_from(times_ms[0], times_ms)
    offsets = batch.offsets()[begin:end]
    deltas = (
        range(end - begin)
        if isinstance(offsets, range)
        else _counted_from(offsets[0], offsets.tolist())
    )
    if keys is None and items is None and None not in values:
        parts = _plain(values, deltas_ms, deltas)  # type: ignore[arg-type]  # no None is in it
    else:
        count = end - begin
        parts = _any(values, keys or [None] * count, items or [b""] * count, deltas_ms, deltas)
    records = b"".join(parts)
    after_crc = _AFTER_CRC.pack(
        0, deltas[-1], times_ms[0], max(times_ms), *_NO_PRODUCER, end - begin
    )
    return b"".join((_before_crc(offsets[0], after_crc, records), after_crc, records))


def _counted_from(first: int, numbers: list[int]) -> Sequence[int]:
    return [number - first for number in numbers]


def _before_crc(base_offset: int, after_crc: bytes, records: bytes) -> bytes:
    length = HEAD_BYTES - LENGTH_FROM + len(records)
    head = HEAD.pack(base_offset, length, 0, MAGIC, crc32c(records, crc32c(after_crc)), *(0,) * 8)
    return head[:CRC_FROM]


def _plain(values: list[bytes], deltas_ms: Sequence[int], deltas: Sequence[int]) -> list[bytes]:
    """The parts of records with neither record keys nor headers nor nulls: most are such."""
    varints = VARINTS
    if isinstance(deltas, range) and not any(deltas_ms):
        middles = _MIDDLES
    else:
        middles = [
            b"\0" + varints[ms] + varints[delta] + _NULL
            for ms, delta in zip(deltas_ms, deltas, strict=True)
        ]
    lengths = list(map(len, values))
    packed = map(varints.__getitem__, lengths)
    heads = [  # each begins with the end of the record before: it has no headers
        NO_HEADERS + varints[len(middle) + len(length) + size + 1] + middle + length
        for middle, size, length in zip(middles, lengths, packed, strict=False)
    ]
    heads[0] = heads[0][len(NO_HEADERS) :]
    parts = [NO_HEADERS] * (2 * len(values) + 1)
    parts[:-1:2] = heads
    parts[1::2] = values
    return parts


def _any(
    values: list[bytes | None],
    keys: list[bytes | None],
    items: Sequence[bytes | None],
    deltas_ms: Sequence[int],
    deltas: Sequence[int],
) -> list[bytes]:
    """The parts of records of any kind. `items`: header items."""
    varints = VARINTS
    parts: list[bytes] = []
    item: bytes | None = b""
    section = NO_HEADERS
    for value, key, own, ms, delta in zip(values, keys, items, deltas_ms, deltas, strict=True):
        if own != item:  # neighbours often have the same
            item, section = own, section_of(own or b"")
        middle = b"\0" + varints[ms] + varints[delta]
        middle += _NULL if key is None else varints[len(key)] + key
        if value is None:
            middle += _NULL
            parts += (varints[len(middle) + len(section)], middle, section)
            continue
        size = len(value)
        middle += varints[size]
        parts += (varints[len(middle) + size + len(section)], middle, value, section)
    return parts


# The middles of plain records at one time: attributes, time, offset, no record key.
_MIDDLES: Final = [b"\0\0" + VARINTS[delta] + _NULL for delta in range(_BATCH_RECORDS)]

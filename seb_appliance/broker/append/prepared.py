"""Records on their way in: checked and given timestamps, before any place in a log is theirs."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from seb_appliance import limits
from seb_appliance.broker.values import NewBatches, NewRecords
from seb_appliance.errors import BadBatchError, BadParameterError, RecordTooLargeError
from seb_appliance.formats.batch import EXPLICIT_OFFSETS, HEADER_BYTES

# What a record takes in a batch beside its own bytes: timestamp, three starts, two bitmaps' bits.
RECORD_OVERHEAD_BYTES = 24


@dataclass(frozen=True, slots=True)
class Prepared:
    """`size_bytes`: about what they take when encoded. `timestamps_us` is empty for batches, which
    bring their own; `timestamp_us` is the last record's."""

    records: NewRecords | NewBatches
    count: int
    size_bytes: int
    timestamps_us: list[int]
    timestamp_us: int


def prepare(
    records: NewRecords | NewBatches, max_record_bytes: int, timestamp_us: int, now_us: int
) -> Prepared:
    """`timestamp_us` is for records that have none. Raises RecordTooLargeError, BadBatchError,
    BadParameterError."""
    if isinstance(records, NewBatches):
        _check_size(records.largest_value_bytes, max_record_bytes)
        for header, _ in records.batches:
            if header.flags & EXPLICIT_OFFSETS or header.base_offset != 0:
                raise BadBatchError("Leave the offsets of new batches 0: the appliance gives them.")
            _check_timestamps(header.smallest_timestamp_us, header.largest_timestamp_us, now_us)
        size_bytes = sum(len(stored) + HEADER_BYTES for _, stored in records.batches)
        last_us = records.batches[-1][0].largest_timestamp_us
        return Prepared(records, records.count, size_bytes, [], last_us)
    size_bytes = _size(records, max_record_bytes)
    timestamps_us = _timestamps(records, timestamp_us, now_us)
    return Prepared(records, len(records.values), size_bytes, timestamps_us, timestamps_us[-1])


def _timestamps(records: NewRecords, timestamp_us: int, now_us: int) -> list[int]:
    if records.timestamps_us is None:
        return [timestamp_us] * len(records.values)
    given = [t for t in records.timestamps_us if t is not None]
    if given:
        _check_timestamps(min(given), max(given), now_us)
    return [timestamp_us if t is None else t for t in records.timestamps_us]


def _size(records: NewRecords, max_record_bytes: int) -> int:
    sizes = [len(value) for value in records.values if value is not None]
    _check_size(max(sizes, default=0), max_record_bytes)
    size_bytes = sum(sizes) + RECORD_OVERHEAD_BYTES * len(records.values)
    if records.keys is not None:
        size_bytes += sum(len(key) for key in records.keys if key is not None)
    if records.headers is not None:
        size_bytes += sum(map(len, records.headers))
    return size_bytes


def _check_size(largest_bytes: int, max_record_bytes: int) -> None:
    if largest_bytes > max_record_bytes:
        raise RecordTooLargeError(
            f"A record has {largest_bytes} bytes; this topic takes {max_record_bytes} at most.",
            max_record_bytes=max_record_bytes,
        )


def _check_timestamps(smallest_us: int, largest_us: int, now_us: int) -> None:
    if smallest_us < 0 or largest_us > now_us + limits.TIMESTAMP_AHEAD_US_MAX:
        raise BadParameterError(
            "A record's timestamp is before 1970 or over 24 hours ahead of now."
        )


# Record keys and headers of new records, within their limits.


def check_key(key: bytes) -> bytes:
    """`key` itself. Raises RecordTooLargeError."""
    if len(key) > limits.RECORD_KEY_BYTES_MAX:
        raise RecordTooLargeError(
            f"A record key has {len(key)} bytes; at most {limits.RECORD_KEY_BYTES_MAX} are allowed."
        )
    return key


def pack_headers(headers: dict[str, bytes]) -> bytes:
    """Record headers as they are stored: a msgpack map, nothing at all for none.

    Raises RecordTooLargeError.
    """
    if not headers:
        return b""
    packed = msgspec.msgpack.encode(headers)
    check_headers(len(headers), len(packed))
    return packed


def check_headers(count: int, size_bytes: int) -> None:
    """Of one record, as stored. Raises RecordTooLargeError."""
    if count > limits.RECORD_HEADERS_MAX or size_bytes > limits.RECORD_HEADERS_BYTES_MAX:
        raise RecordTooLargeError(
            f"A record has {count} headers of {size_bytes} bytes; at most "
            f"{limits.RECORD_HEADERS_MAX} of {limits.RECORD_HEADERS_BYTES_MAX} are allowed."
        )

"""The fixed part of a record batch with magic 2, and the integers of variable length in it.

Such an integer is zigzag (0, -1, 1, -2, … become 0, 1, 2, 3, …), then 7 bits a byte, the least
significant first; all bytes but the last have the top bit set. Here `raw` is the zigzag number: it
is even if the integer is not negative, and 1 for -1, which means null where it is a length.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from seb_appliance.formats.columns import Bytes
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.wire.types import write_uvarint

HEAD: Final = struct.Struct(">qiibIhiqqqhii")
HEAD_BYTES: Final = 61
LENGTH_FROM: Final = 12  # the batch length counts from here on
MAGIC_AT: Final = 16  # in every version of the format
CRC_FROM: Final = 21  # the CRC is of what follows it
MAGIC: Final = 2

CODEC_BITS: Final = 0x07
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

NULL: Final = 1  # the raw length of null
_VARINT_BYTES_MAX: Final = 10  # of 64 bits
_KEPT_MAX: Final = 1 << 13  # what takes up to two bytes

assert HEAD.size == HEAD_BYTES


class BatchHead(NamedTuple):
    """The fields of the fixed part, in their order. Times in ms, -1 for none."""

    base_offset: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def varint(buffer: Bytes, at: int) -> tuple[int, int]:
    """The raw number at `at`, and the position after it. Raises IndexError at the end of the
    buffer, KafkaError if it has more than 64 bits."""
    raw = buffer[at]
    if raw < 0x80:
        return raw, at + 1
    raw &= 0x7F
    for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
        at += 1
        byte = buffer[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, at + 1
    raise KafkaError(ErrorCode.INVALID_RECORD, "An integer of a record has more than 64 bits.")


def signed(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


def packed_varint(number: int) -> bytes:
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    packed = bytearray()
    write_uvarint(packed, raw)
    return bytes(packed)


class _Varints(dict[int, bytes]):
    """`packed_varint` of each number; the small ones are kept."""

    def __missing__(self, number: int) -> bytes:
        packed = packed_varint(number)
        if 0 <= number < _KEPT_MAX:
            self[number] = packed
        return packed


VARINTS: Final = _Varints()

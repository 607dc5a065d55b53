"""Segment, version 1: sections of one topic, or of many (a packed object); docs/FORMAT.md.

A 32-byte header, sections, and a trailer that is read from the object's end: a row for each
section, then 56 fixed bytes. The rows are enough to find every batch without the journal.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.operations import StoredSection

MAGIC: Final = b"sebs"
VERSION: Final = 1
HEADER_BYTES: Final = 32
MANY_TOPICS: Final = 0  # the topic id in the header of a packed object

_HEADER = struct.Struct("<4sHHQqq")
_ROW = struct.Struct("<QqqQQQIIqq")
_TRAILER = struct.Struct("<qq16sQIII4s")

ROW_BYTES: Final = _ROW.size
TRAILER_BYTES: Final = _TRAILER.size

assert (_HEADER.size, ROW_BYTES, TRAILER_BYTES) == (HEADER_BYTES, 72, 56)


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """What header and trailer of an object say. `topic_id` is 0 for a packed object, and base and
    last are then the first and last seq of the entries that it was made of, or 0."""

    topic_id: int
    base: int
    last: int
    sections: tuple[StoredSection, ...]
    record_count: int
    created_us: int
    largest_timestamp_us: int
    bucket_id: bytes


def header(topic_id: int, base: int, last: int) -> bytes:
    """The first bytes of an object; its sections follow at once."""
    return _HEADER.pack(MAGIC, VERSION, 0, topic_id, base, last)


def trailer(head: bytes, sections: Sequence[StoredSection], bucket_id: bytes) -> bytes:
    """The bytes that follow the last of `sections`, which lie back to back from byte 32 on."""
    assert 1 <= len(sections) <= limits.SEGMENT_SECTIONS_MAX, len(sections)
    rows = b"".join(
        _ROW.pack(
            section.topic_id,
            section.base_offset,
            section.last_offset,
            section.at,
            section.length,
            section.record_count,
            section.crc,
            0,
            section.created_us,
            section.largest_timestamp_us,
        )
        for section in sections
    )
    facts = (
        max(section.created_us for section in sections),
        max(section.largest_timestamp_us for section in sections),
        bucket_id,
        sum(section.record_count for section in sections),
        len(sections),
    )
    unsealed = _TRAILER.pack(*facts, 0, 0, MAGIC)
    crc = crc32c(unsealed, crc32c(rows, crc32c(head)))
    return rows + _TRAILER.pack(*facts, crc, 0, MAGIC)


def index_bytes(tail: Bytes) -> int:
    """How many bytes at the object's end hold the index. `tail`: its last 56 bytes at least."""
    count = _fixed(tail)[4]
    return count * ROW_BYTES + TRAILER_BYTES


def read_index(head: Bytes, tail: Bytes, length: int) -> SegmentIndex:
    """The checked index. `head`: the object's first 32 bytes; `tail`: at least `index_bytes` from
    its end; `length`: bytes of the whole object. Raises BadBatchError."""
    if len(head) < HEADER_BYTES:
        raise BadBatchError(f"{len(head)} bytes are too few for a segment")
    magic, version, flags, topic_id, base, last = _HEADER.unpack_from(head)
    if magic != MAGIC:
        raise BadBatchError(f"a segment begins with {MAGIC!r}, not with {magic!r}")
    if version != VERSION:
        raise BadBatchError(
            f"segment version {version} is not known, only {VERSION}. If a newer release wrote it, "
            "install that release"
        )
    if flags:
        raise BadBatchError(f"segment flags {flags:#x} are not known")
    created_us, largest_us, bucket_id, record_count, count, crc, zero, _ = _fixed(tail)
    rows_bytes = count * ROW_BYTES
    if zero or len(tail) < rows_bytes + TRAILER_BYTES or length < HEADER_BYTES + rows_bytes:
        raise BadBatchError(f"the index of {count} sections does not fit the segment")
    rows = bytes(tail[len(tail) - TRAILER_BYTES - rows_bytes : len(tail) - TRAILER_BYTES])
    unsealed = _TRAILER.pack(created_us, largest_us, bucket_id, record_count, count, 0, 0, MAGIC)
    if crc32c(unsealed, crc32c(rows, crc32c(bytes(head[:HEADER_BYTES])))) != crc:
        raise BadBatchError("the CRC of the segment's header and index does not agree")
    sections = tuple(_section(*row) for row in _ROW.iter_unpack(rows))
    index = SegmentIndex(
        topic_id, base, last, sections, record_count, created_us, largest_us, bucket_id
    )
    _check(index, length - TRAILER_BYTES - rows_bytes)
    return index


def _fixed(tail: Bytes) -> tuple[int, int, bytes, int, int, int, int, bytes]:
    if len(tail) < TRAILER_BYTES:
        raise BadBatchError(f"{len(tail)} bytes are too few for a segment's trailer")
    fields = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    if fields[-1] != MAGIC:
        raise BadBatchError(f"a segment ends with {MAGIC!r}, not with {fields[-1]!r}")
    if not 1 <= fields[4] <= limits.SEGMENT_SECTIONS_MAX:
        raise BadBatchError(f"a segment of {fields[4]} sections")
    return fields


def _section(*row: int) -> StoredSection:
    topic_id, base, last, at, length, count, crc, zero, created_us, largest_us = row
    if zero:
        raise BadBatchError("unknown bits are set in the segment's index")
    return StoredSection(topic_id, base, last, count, at, length, crc, created_us, largest_us)


def _check(index: SegmentIndex, sections_end: int) -> None:
    """Sections lie back to back, in the order of topics and offsets, and add up."""
    at, before = HEADER_BYTES, (-1, -1)
    for section in index.sections:
        if section.at != at or section.length % 8 or not section.length:
            raise BadBatchError(f"a section at {section.at}, where {at} is expected")
        at += section.length
        if not 0 <= section.base_offset <= section.last_offset <= limits.OFFSET_MAX:
            raise BadBatchError(f"offsets {section.base_offset} to {section.last_offset}")
        if not 1 <= section.record_count <= section.last_offset - section.base_offset + 1:
            raise BadBatchError(f"a section of {section.record_count} records")
        if (section.topic_id, section.base_offset) <= before:
            raise BadBatchError("sections of a segment overlap, or are out of order")
        before = (section.topic_id, section.last_offset)
        if index.topic_id not in (MANY_TOPICS, section.topic_id):
            raise BadBatchError(f"a section of topic {section.topic_id} in a segment of another")
    if at != sections_end:
        raise BadBatchError(f"the sections end at {at}, the index begins at {sections_end}")
    if index.record_count != sum(section.record_count for section in index.sections):
        raise BadBatchError("the record counts of a segment do not add up")
    if index.created_us != max(section.created_us for section in index.sections):
        raise BadBatchError("the newest `created` of a segment does not agree with its sections")
    if index.largest_timestamp_us != max(s.largest_timestamp_us for s in index.sections):
        raise BadBatchError("the largest timestamp of a segment does not agree with its sections")


def decode(body: Bytes) -> SegmentIndex:
    """The checked index of a whole object."""
    tail = memoryview(body)[HEADER_BYTES:]
    return read_index(memoryview(body)[:HEADER_BYTES], tail, len(body))

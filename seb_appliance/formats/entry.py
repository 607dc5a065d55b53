"""Journal entry, version 1: a 112-byte header, a table of contents, sections (docs/FORMAT.md).

Header CRCs are chained: each header holds the header CRC of the entry before it, so that a reader
knows whether an entry continues the log that it has read so far.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats.columns import Bytes, pad8
from seb_appliance.formats.contents import Contents, decode_contents, encode_contents

MAGIC: Final = b"sebj"
VERSION: Final = 1
HEADER_BYTES: Final = 112
FLAG_EPOCH: Final = 1

_HEADER = struct.Struct("<4sHHQQII16s16s16sqQIIII")
_HEADER_CRC_AT: Final = 104
_CRC = struct.Struct("<I")

assert _HEADER.size == HEADER_BYTES


class Position(msgspec.Struct, frozen=True):
    """A place in the journal: the last entry read or written. Everything that holds state as of an
    entry keeps its position, and the next entry must chain to it."""

    seq: int = 0
    epoch: int = 0
    writer_id: bytes = b"\0" * 16
    entry_id: bytes = b"\0" * 16
    header_crc: int = 0
    created_us: int = 0


ORIGIN: Final = Position()


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The fixed part. `length`: bytes of the whole object; `created_us`: µs since the epoch."""

    flags: int
    seq: int
    prev_seq: int
    epoch: int
    contents_bytes: int
    writer_id: bytes
    entry_id: bytes
    bucket_id: bytes
    created_us: int
    length: int
    prev_header_crc: int
    contents_crc: int
    header_crc: int

    @property
    def is_epoch(self) -> bool:
        return bool(self.flags & FLAG_EPOCH)

    @property
    def sections_at(self) -> int:
        """Position in the object of the first section."""
        return HEADER_BYTES + self.contents_bytes + pad8(self.contents_bytes)

    @property
    def position(self) -> Position:
        return Position(
            self.seq, self.epoch, self.writer_id, self.entry_id, self.header_crc, self.created_us
        )

    def follows(self, position: Position) -> bool:
        """Whether this entry is the very next one after `position`."""
        return (
            self.prev_seq == position.seq
            and self.seq == position.seq + 1
            and self.prev_header_crc == position.header_crc
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """A decoded entry without its sections' bytes."""

    header: EntryHeader
    contents: Contents


@dataclass(frozen=True, slots=True)
class EncodedEntry:
    """The bytes to PUT, and what is in them."""

    entry: Entry
    body: bytes


Encoder: TypeAlias = Callable[[Contents, Sequence[Bytes]], EncodedEntry]
"""Makes an entry of its table of contents and the parts of its section area, in any thread."""


def encode(
    contents: Contents,
    section_parts: Sequence[Bytes],
    *,
    after: Position,
    epoch: int,
    writer_id: bytes,
    entry_id: bytes,
    bucket_id: bytes,
    created_us: int,
    is_epoch: bool = False,
) -> EncodedEntry:
    """One entry that continues the log at `after`. `section_parts` joined are the section area."""
    table = encode_contents(contents)
    assert len(table) <= limits.ENTRY_CONTENTS_BYTES_MAX, len(table)
    padding = b"\0" * pad8(len(table))
    length = HEADER_BYTES + len(table) + len(padding) + sum(map(len, section_parts))
    assert length <= limits.ENTRY_BYTES_MAX, length
    flags = FLAG_EPOCH if is_epoch else 0
    fields = _HEADER.pack(
        MAGIC,
        VERSION,
        flags,
        after.seq + 1,
        after.seq,
        epoch,
        len(table),
        writer_id,
        entry_id,
        bucket_id,
        created_us,
        length,
        after.header_crc,
        crc32c(table),
        0,
        0,
    )
    header_crc = crc32c(fields[:_HEADER_CRC_AT])
    packed = fields[:_HEADER_CRC_AT] + _CRC.pack(header_crc) + fields[_HEADER_CRC_AT + 4 :]
    body = b"".join((packed, table, padding, *section_parts))
    return EncodedEntry(Entry(read_header(body), contents), body)


def read_header(buffer: Bytes) -> EntryHeader:
    """The checked header at the beginning of `buffer`, or BadBatchError."""
    if len(buffer) < HEADER_BYTES:
        raise BadBatchError(f"{len(buffer)} bytes are too few for a journal entry")
    (magic, version, *fields, zero) = _HEADER.unpack_from(buffer)
    if magic != MAGIC:
        raise BadBatchError(f"a journal entry begins with {MAGIC!r}, not with {magic!r}")
    if version != VERSION:
        raise BadBatchError(
            f"journal entry version {version} is not known, only {VERSION}. If a newer release "
            "wrote it, install that release"
        )
    if crc32c(memoryview(buffer)[:_HEADER_CRC_AT]) != fields[-1]:
        raise BadBatchError("the CRC of the entry's header does not agree")
    header = EntryHeader(*fields)
    if zero or header.flags & ~FLAG_EPOCH:
        raise BadBatchError(f"unknown bits are set in the entry's header (flags {header.flags:#x})")
    if header.contents_bytes > limits.ENTRY_CONTENTS_BYTES_MAX:
        raise BadBatchError(f"a table of contents of {header.contents_bytes} bytes")
    if not header.sections_at <= header.length <= limits.ENTRY_BYTES_MAX:
        raise BadBatchError(f"an entry of {header.length} bytes")
    if header.seq != header.prev_seq + 1 or header.seq > limits.OFFSET_MAX:
        raise BadBatchError(f"entry {header.seq} says that it follows {header.prev_seq}")
    return header


def read_contents(header: EntryHeader, buffer: Bytes) -> Contents:
    """The table of contents; `buffer` holds the object from its first byte up to `sections_at`."""
    table = memoryview(buffer)[HEADER_BYTES : HEADER_BYTES + header.contents_bytes]
    if len(table) < header.contents_bytes:
        raise BadBatchError("the table of contents is cut short")
    if crc32c(table) != header.contents_crc:
        raise BadBatchError("the CRC of the table of contents does not agree")
    contents = decode_contents(table)
    room = header.length - header.sections_at
    for section in contents.sections:
        if section.start + section.length > room:
            raise BadBatchError(f"a section of topic {section.topic_id} lies outside the object")
        if not section.base_offset <= section.last_offset <= limits.OFFSET_MAX:
            raise BadBatchError(f"offsets {section.base_offset} to {section.last_offset}")
        if not 1 <= section.record_count <= section.last_offset - section.base_offset + 1:
            raise BadBatchError(f"a section of {section.record_count} records")
    return contents


def decode(buffer: Bytes) -> Entry:
    """A whole object: header and contents checked, and its length."""
    header = read_header(buffer)
    if len(buffer) != header.length:
        raise BadBatchError(f"the entry says {header.length} bytes, {len(buffer)} are there")
    return Entry(header, read_contents(header, buffer))


def section_bytes(header: EntryHeader, buffer: bytes, start: int, length: int) -> memoryview:
    """The bytes of one section of a whole object."""
    at = header.sections_at + start
    return memoryview(buffer)[at : at + length]

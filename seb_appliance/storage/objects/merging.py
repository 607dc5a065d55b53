"""Merging many small batches of one topic into few larger ones with the same records.

Large batches stay as they are. A `Fingerprint` shows whether the output holds the same records.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch, batch_v1, segment
from seb_appliance.formats.batch import Batch, BatchHeader
from seb_appliance.formats.columns import BinaryColumn, Bytes, Columns, int64s
from seb_appliance.formats.compression import Compressor
from seb_appliance.formats.operations import StoredSection

# Inflated. A batch is unpacked whole to read one record, which takes a third of a millisecond;
# larger ones hardly compress better (benchmarks/compression.py).
_MERGED_BYTES: Final = 256 * limits.KIB
_STAYS_BYTES: Final = 128 * limits.KIB  # of a batch that is not worth merging
_RECORDS_MAX: Final = 65_536  # of a merged batch


@dataclass(slots=True)
class Fingerprint:
    """A checksum of records that does not depend on their division into batches."""

    count: int = 0
    _crcs: list[int] = field(default_factory=lambda: [0] * 8)

    def add(self, found: Batch) -> None:
        columns = found.columns
        self.count += found.header.count
        parts: list[Bytes] = [
            int64s(found.offsets()).tobytes(),
            memoryview(columns.timestamps_us).cast("B"),
            *_bytes_of(columns.values, found.header.count),
            *_bytes_of(columns.keys, found.header.count),
            *_bytes_of(columns.headers, found.header.count, absent=0),
        ]
        self._crcs = [crc32c(part, crc) for part, crc in zip(parts, self._crcs, strict=True)]


def _bytes_of(column: BinaryColumn | None, count: int, absent: int = -1) -> tuple[bytes, Bytes]:
    """The length of each item (-1 for a null), and all their bytes."""
    if column is None:
        return array("q", [absent] * count).tobytes(), b""
    lengths = array("q", [b - a for a, b in pairwise(column.starts.tolist())])
    if column.valid is not None:
        for i in range(count):
            if column.is_null(i):
                lengths[i] = -1
    return lengths.tobytes(), column.data


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch to write."""

    base_offset: int
    last_offset: int
    count: int
    created_us: int
    largest_timestamp_us: int
    data: Bytes


def batches_of(data: bytes, base_offset: int, last_offset: int) -> Iterator[tuple[Batch, Bytes]]:
    """Each decoded batch of a section, and its bytes. A file of the Go broker is taken for the
    batch of version 2 that it amounts to. Raises BadBatchError, also when they do not answer for
    exactly these offsets."""
    if batch_v1.is_version_1(data):  # compressed as it was, whatever the topic asks for
        data = Compressor().pack(batch_v1.as_version_2(data, base_offset))
    next_offset = base_offset
    for at, header in batch.walk(data):
        if header.base_offset != next_offset:
            raise BadBatchError(f"a batch begins at {header.base_offset}, not at {next_offset}")
        next_offset = header.last_offset + 1
        yield batch.decode(data, at), memoryview(data)[at : at + header.total_bytes]
    if next_offset != last_offset + 1:
        raise BadBatchError(f"the batches end at {next_offset}, not at {last_offset + 1}")


def merge(batches: Iterable[tuple[Batch, Bytes]], *, compress: bool) -> Iterator[Piece]:
    """The same records, in order, in fewer batches. Neighbours answer for neighbouring ranges.

    With `compress`, and where one of them was compressed before, they are packed as
    `Compressor` does it. About a mebibyte is in memory beside the largest of `batches`.
    """
    compressor = Compressor()
    run: list[tuple[Batch, Bytes]] = []
    run_bytes = run_records = 0
    for found, stored in batches:
        header = found.header
        stays = header.inflated_bytes >= _STAYS_BYTES
        full = (
            run_bytes + header.inflated_bytes > _MERGED_BYTES
            or run_records + header.count > _RECORDS_MAX
        )
        if run and (stays or full):
            yield from _pieces(run, compressor, compress=compress)
            run, run_bytes, run_records = [], 0, 0
        if stays:
            yield _piece([header], stored)
        else:
            run.append((found, stored))
            run_bytes += header.inflated_bytes
            run_records += header.count
    if run:
        yield from _pieces(run, compressor, compress=compress)


def _pieces(
    run: list[tuple[Batch, Bytes]], compressor: Compressor, *, compress: bool
) -> Iterator[Piece]:
    """One batch for all, unless they take less as they are: a client may compress harder."""
    headers = [found.header for found, _ in run]
    if len(run) > 1:
        data = batch.encode(
            joined([found for found, _ in run]),
            base_offset=headers[0].base_offset,
            last_offset=headers[-1].last_offset,
            created_us=max(header.created_us for header in headers),
        )
        if compress or any(header.flags & batch.ZSTD for header in headers):
            data = compressor.pack(data)
        if len(data) <= sum(len(stored) for _, stored in run):
            yield _piece(headers, data)
            return
    for header, (_, stored) in zip(headers, run, strict=True):
        yield _piece([header], stored)


def _piece(headers: list[BatchHeader], data: Bytes) -> Piece:
    return Piece(
        headers[0].base_offset,
        headers[-1].last_offset,
        sum(header.count for header in headers),
        max(header.created_us for header in headers),
        max(header.largest_timestamp_us for header in headers),
        data,
    )


def joined(batches: list[Batch]) -> Columns:
    timestamps, offsets = array("q"), array("q")
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    headers: list[bytes | None] = []
    for found in batches:
        columns, count = found.columns, found.header.count
        timestamps.frombytes(memoryview(columns.timestamps_us).cast("B"))
        offsets.extend(found.offsets())
        values += columns.values.slice()
        keys += columns.keys.slice() if columns.keys is not None else [None] * count
        headers += columns.headers.slice() if columns.headers is not None else [b""] * count
    first, last = batches[0].header.base_offset, batches[-1].header.last_offset
    has_gaps = last - first + 1 != len(offsets)
    return Columns(
        timestamps,
        BinaryColumn.of(values),
        BinaryColumn.of(keys) if any(b.columns.keys is not None for b in batches) else None,
        BinaryColumn.of(headers) if any(b.columns.headers is not None for b in batches) else None,
        offsets if has_gaps else None,
    )


class ObjectDraft:
    """An object being built: batches become sections of about a mebibyte. `sections`: the complete
    ones; call `end_section` after the last batch of a range."""

    def __init__(self) -> None:
        self.sections: list[StoredSection] = []
        self._parts: list[Bytes] = []
        self._size_bytes = segment.HEADER_BYTES
        self._topic_id = 0
        self._pieces: list[Piece] = []
        self._pieces_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Of header and sections, including the incomplete one."""
        return self._size_bytes + self._pieces_bytes

    def add(self, topic_id: int, pieces: Iterable[Piece]) -> None:
        """The next batches of a topic."""
        assert not self._pieces or topic_id == self._topic_id, (topic_id, self._topic_id)
        self._topic_id = topic_id
        for piece in pieces:
            if self._pieces_bytes + len(piece.data) > limits.SEGMENT_SECTION_BYTES:
                self.end_section()
            self._pieces.append(piece)
            self._pieces_bytes += len(piece.data)

    def end_section(self) -> None:
        pieces = self._pieces
        if not pieces:
            return
        crc = 0
        for piece in pieces:
            crc = crc32c(piece.data, crc)
            self._parts.append(piece.data)
        self.sections.append(
            StoredSection(
                self._topic_id,
                pieces[0].base_offset,
                pieces[-1].last_offset,
                sum(piece.count for piece in pieces),
                self._size_bytes,
                self._pieces_bytes,
                crc,
                max(piece.created_us for piece in pieces),
                max(piece.largest_timestamp_us for piece in pieces),
            )
        )
        self._size_bytes += self._pieces_bytes
        self._pieces, self._pieces_bytes = [], 0

    def seal(self, head: bytes, bucket_id: bytes) -> bytes:
        """The whole object; `head`: what `segment.header` made."""
        assert not self._pieces
        trailer = segment.trailer(head, self.sections, bucket_id)
        return b"".join((head, *self._parts, trailer))

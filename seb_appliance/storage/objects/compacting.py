"""Compacting sections of segments: the newest record of each record key stays, at its offset.

The sections are read twice, some mebibytes at a time: first to find the records that stay, then to
write them. The output answers for all offsets of its inputs.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import IO, Final, TypeAlias

import msgspec

from seb_appliance import limits
from seb_appliance.broker.upkeep.rewrite_jobs import Compaction, RewriteJob, Rewritten, SectionPlace
from seb_appliance.formats import batch, segment
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.compression import Compressor
from seb_appliance.formats.operations import ReplacedRange, StoredObject
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import together
from seb_appliance.storage.objects.checked_objects import READS_AT_ONCE, CheckedObjects, check_crc
from seb_appliance.storage.objects.merging import (
    Fingerprint,
    ObjectDraft,
    Piece,
    batches_of,
    joined,
)

_HEAD: Final = struct.Struct("<Iq")  # length of the record key, number of the record
_OF_A_KEY_BYTES: Final = 160  # in memory, beside the key's own bytes
_BUFFER_BYTES: Final = 64 * limits.KIB
_RECORDS_MAX: Final = 65_536  # of a batch
_OBJECTS_MAX: Final = 512  # of a job; one entry names them all

Sections: TypeAlias = "list[tuple[SectionPlace, bytes]]"


class Survivors:
    """A bit for each record, by its number: whether it stays. `count` of them stay."""

    def __init__(self) -> None:
        self.count = 0
        self._bits = bytearray()

    def reach(self, records: int) -> None:
        """Make room for this number of records."""
        self._bits.extend(bytes((records + 7) // 8 - len(self._bits)))

    def keep(self, numbers: Iterable[int]) -> None:
        """Mark these records; none of them was marked before."""
        bits = self._bits
        for number in numbers:
            bits[number >> 3] |= 1 << (number & 7)
            self.count += 1

    def are_left_by(self, kept: Survivors, may_go: Survivors) -> bool:
        """Whether `kept` are all of these except perhaps some of `may_go`, and nothing else."""
        ours, stay, go = self.as_number(), kept.as_number(), may_go.as_number()
        return ours | stay == ours and not ours & ~(stay | go)

    def as_number(self) -> int:
        """Its bits, that of record 0 the lowest."""
        return int.from_bytes(self._bits, "little")

    def among(self, first: int, count: int) -> list[int]:
        """Which of `count` records from `first` on stay, counted from `first`."""
        bits = self._bits
        numbers = range(first, first + count)
        return [i for i, number in enumerate(numbers) if bits[number >> 3] >> (number & 7) & 1]


class NewestRecords:
    """Finds the newest record of each record key in bounded memory. Pass all records to `add` in
    the order of their offsets, then call `finish`. Raises OSError.

    Keys are held in a dictionary; when that is too large, they are written in order to an unnamed
    file in `folder`, and the files are merged at the end. Keys are compared whole, not by a hash.
    """

    def __init__(self, folder: Path) -> None:
        self.count = 0  # records that were added
        self._folder = folder
        self._newest: dict[bytes, int] = {}
        self._room_bytes = limits.COMPACTION_KEYS_BYTES
        self._sorted: list[IO[bytes]] = []
        self._survivors = Survivors()

    def add(self, keys: Sequence[bytes | None]) -> None:
        """The record keys of the next records; a record without a key stays."""
        first, self.count = self.count, self.count + len(keys)
        self._survivors.reach(self.count)
        before = len(self._newest)
        if None in keys:
            self._survivors.keep(first + i for i, key in enumerate(keys) if key is None)
            keyed = [(key, first + i) for i, key in enumerate(keys) if key is not None]
            self._newest.update(keyed)
            key_bytes = sum(len(key) for key, _ in keyed)
        else:
            self._newest.update(zip(keys, range(first, self.count), strict=True))  # type: ignore[arg-type]
            key_bytes = sum(map(len, keys))  # type: ignore[arg-type]
        if added := len(self._newest) - before:
            self._room_bytes -= _OF_A_KEY_BYTES * added + key_bytes
            if self._room_bytes < 0:
                self._write_down()

    def add_sections(self, sections: Sections) -> None:
        for place, data in sections:
            for found, _ in batches_of(data, place.base_offset, place.last_offset):
                keys = found.columns.keys
                self.add([None] * found.header.count if keys is None else keys.slice())

    def finish(self) -> Survivors:
        """The newest record of each record key, and all records without one."""
        if self._sorted:
            self._write_down()
            self._survivors.keep(number for _, number in _newest_of(self._sorted))
        else:
            self._survivors.keep(self._newest.values())
        self.close()
        return self._survivors

    def close(self) -> None:
        for file in self._sorted:
            file.close()
        self._sorted = []
        self._newest = {}

    def _write_down(self) -> None:
        self._sorted.append(self._written(sorted(self._newest.items())))
        self._newest, self._room_bytes = {}, limits.COMPACTION_KEYS_BYTES
        if len(self._sorted) >= limits.COMPACTION_SORTED_FILES_MAX:
            merged = self._written(_newest_of(self._sorted))
            for file in self._sorted:
                file.close()
            self._sorted = [merged]

    def _written(self, rows: Iterable[tuple[bytes, int]]) -> IO[bytes]:
        file = tempfile.TemporaryFile(dir=self._folder, buffering=_BUFFER_BYTES)  # noqa: SIM115
        try:
            for key, number in rows:
                file.write(_HEAD.pack(len(key), number))
                file.write(key)
        except BaseException:
            file.close()
            raise
        return file


def _newest_of(files: Sequence[IO[bytes]]) -> Iterator[tuple[bytes, int]]:
    """The last row of each record key, in their order."""
    before: tuple[bytes, int] | None = None
    for row in merge(*map(_rows, files)):
        if before is not None and before[0] != row[0]:
            yield before
        before = row
    if before is not None:
        yield before


def _rows(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    file.seek(0)
    while head := file.read(_HEAD.size):
        length, number = _HEAD.unpack(head)
        yield file.read(length), number


async def compact(job: RewriteJob, store: CheckedObjects, folder: Path) -> Rewritten:
    """Performs the job's compactions; the output is stored and read back. `folder`: for record keys
    that do not fit into memory. Raises CorruptObjectError, StoreError, OSError."""
    places: dict[int, list[SectionPlace]] = {}
    for place in job.sections:
        places.setdefault(place.topic_id, []).append(place)
    output = _Output(job, store)
    removed = 0
    for item in job.compactions:
        inputs = sorted(places[item.topic_id], key=lambda place: place.base_offset)
        removed += await _compact_topic(item, inputs, output, store, folder)
    await output.seal()
    return Rewritten(
        tuple(
            ReplacedRange(item.topic_id, item.base_offset, item.last_offset)
            for item in job.compactions
        ),
        tuple(output.objects),
        removed,
        store.bytes_read,
        store.bytes_written,
    )


async def _compact_topic(
    item: Compaction,
    places: Sequence[SectionPlace],
    output: _Output,
    store: CheckedObjects,
    folder: Path,
) -> int:
    """The number of removed records."""
    newest = NewestRecords(folder)
    try:
        async for sections in read_sections(places, store):
            await asyncio.to_thread(newest.add_sections, sections)
        survivors = await asyncio.to_thread(newest.finish)
    finally:
        newest.close()
    keeper = _Keeper(item, survivors, newest.count, output)
    output.begin_topic()
    async for sections in read_sections(places, store):
        await asyncio.to_thread(keeper.take, sections)
        if output.is_full:
            await output.seal()
    await asyncio.to_thread(keeper.finish)
    return newest.count - keeper.kept


async def read_sections(
    places: Sequence[SectionPlace], store: CheckedObjects
) -> AsyncIterator[Sections]:
    """All sections in order; neighbours in an object are read by one request."""
    neighbours: list[list[SectionPlace]] = []
    size_bytes = 0
    for place in places:
        last = neighbours[-1][-1] if neighbours else None
        is_next = last is not None and (last.key, last.at + last.length) == (place.key, place.at)
        size_bytes += place.length
        if not is_next or size_bytes > limits.COMPACTION_READ_BYTES:
            neighbours.append([])
            size_bytes = place.length
        neighbours[-1].append(place)
    for begin in range(0, len(neighbours), READS_AT_ONCE):
        reads = (_get(group, store) for group in neighbours[begin : begin + READS_AT_ONCE])
        for sections in await together(reads, READS_AT_ONCE):
            yield sections


async def _get(places: Sequence[SectionPlace], store: CheckedObjects) -> Sections:
    first, last = places[0], places[-1]

    def check(body: bytes) -> Sections:
        sections = []
        for place in places:
            begin = place.at - first.at
            data = body[begin : begin + place.length]
            check_crc(data, place.crc)
            sections.append((place, data))
        return sections

    length = last.at + last.length - first.at
    return await store.get_range(first.key, first.at, length, check)


class _Keeper:
    """Packs the records of a topic that stay into batches of about a mebibyte.

    The offsets of a batch without such records go to the next one. The very last record always
    stays, so that no range is without a record.
    """

    def __init__(self, item: Compaction, survivors: Survivors, count: int, output: _Output) -> None:
        self.kept = 0
        self._item = item
        self._survivors = survivors
        self._count = count
        self._output = output
        self._number = 0  # of the next record
        self._gone = 0  # tombstones
        self._begin = item.base_offset  # of the next batch that stays, while none waits
        self._waiting: list[Batch] = []
        self._waiting_bytes = self._waiting_records = 0

    def take(self, sections: Sections) -> None:
        for place, data in sections:
            for found, _ in batches_of(data, place.base_offset, place.last_offset):
                self._take(found)

    def finish(self) -> None:
        assert self._number == self._count, (self._number, self._count)
        assert self.kept == self._survivors.count - self._gone, (self.kept, self._gone)
        self._pack()

    def _take(self, found: Batch) -> None:
        count = found.header.count
        staying = self._survivors.among(self._number, count)
        staying = [i for i in staying if not self._is_over(found, i)]
        self._number += count
        self.kept += len(staying)
        if not staying:
            return
        left = picked(found, staying)
        size_bytes = _bytes_of(left)
        if self._waiting and (
            self._waiting_bytes + size_bytes > limits.SEGMENT_SECTION_BYTES
            or self._waiting_records + len(staying) > _RECORDS_MAX
        ):
            self._begin = self._waiting[-1].header.last_offset + 1
            self._pack()
        if not self._waiting:
            header = msgspec.structs.replace(left.header, base_offset=self._begin)
            left = Batch(header, left.columns)
        self._waiting.append(left)
        self._waiting_bytes += size_bytes
        self._waiting_records += len(staying)

    def _is_over(self, found: Batch, i: int) -> bool:
        """Whether the record is a tombstone past its retention."""
        until_us = self._item.tombstones_until_us
        keys = found.columns.keys
        is_over = (
            until_us is not None
            and found.header.created_us <= until_us
            and found.columns.values.is_null(i)
            and found.offsets()[i] < self._item.tombstones_below
            and keys is not None
            and not keys.is_null(i)
            and self._number + i < self._count - 1
        )
        self._gone += is_over
        return is_over

    def _pack(self) -> None:
        self._output.add(self._item.topic_id, self._waiting)
        self._waiting, self._waiting_bytes, self._waiting_records = [], 0, 0


class _Output:
    """Objects of about the job's `segment_bytes`; small topics share one."""

    def __init__(self, job: RewriteJob, store: CheckedObjects) -> None:
        self.objects: list[StoredObject] = []
        self._job = job
        self._store = store
        size_bytes = sum(place.length for place in job.sections)
        self._full_bytes = max(job.segment_bytes, size_bytes // _OBJECTS_MAX)
        self._draft = ObjectDraft()
        self._expected: dict[tuple[int, int], Fingerprint] = {}
        self._print: Fingerprint | None = None  # of the topic's records in this object
        self._compressor = Compressor()

    def begin_topic(self) -> None:
        self._draft.end_section()
        self._print = None
        self._compressor = Compressor()

    def add(self, topic_id: int, batches: Sequence[Batch]) -> None:
        """Neighbouring batches become one."""
        base, last = batches[0].header.base_offset, batches[-1].header.last_offset
        if self._print is None:
            self._print = self._expected[topic_id, base] = Fingerprint()
        for found in batches:
            self._print.add(found)
        created_us = max(found.header.created_us for found in batches)
        columns = joined(list(batches))
        data = batch.encode(columns, base_offset=base, last_offset=last, created_us=created_us)
        largest_us = batch.read_header(data).largest_timestamp_us
        compress = topic_id in self._job.compressed
        if compress or any(found.header.flags & batch.ZSTD for found in batches):
            data = self._compressor.pack(data)
        count = len(columns)
        self._draft.add(topic_id, [Piece(base, last, count, created_us, largest_us, data)])

    @property
    def is_full(self) -> bool:
        return self._draft.size_bytes >= self._full_bytes

    async def seal(self) -> None:
        """Store the object, and read it back."""
        draft, expected = self._draft, self._expected
        draft.end_section()
        if not draft.sections:
            return
        key, head = self._named(draft)
        self._draft, self._expected, self._print = ObjectDraft(), {}, None
        body = await asyncio.to_thread(draft.seal, head, self._job.bucket_id)
        made = StoredObject(key, len(body), tuple(draft.sections))
        del draft
        await self._store.put(key, body)
        del body
        await self._store.read_back(made, self._job.bucket_id, expected)
        self.objects.append(made)

    def _named(self, draft: ObjectDraft) -> tuple[str, bytes]:
        """Key and header of the object."""
        name = layout.numbered(self._job.name, len(self.objects))
        first, last = draft.sections[0], draft.sections[-1]
        if first.topic_id != last.topic_id:
            key = layout.packed_key(0, 0, self._job.epoch, name)
            return key, segment.header(segment.MANY_TOPICS, 0, 0)
        ends = first.topic_id, first.base_offset, last.last_offset
        return layout.segment_key(*ends, self._job.epoch, name), segment.header(*ends)


def picked(found: Batch, staying: Sequence[int]) -> Batch:
    """The batch with these of its records; each has an explicit offset."""
    columns, offsets = found.columns, int64s(found.offsets())
    if len(staying) == found.header.count:
        left = msgspec.structs.replace(columns, offsets=offsets)
    else:
        left = Columns(
            int64s([columns.timestamps_us[i] for i in staying]),
            _of(columns.values, staying),
            None if columns.keys is None else _of(columns.keys, staying),
            None if columns.headers is None else _of(columns.headers, staying),
            int64s([offsets[i] for i in staying]),
        )
    return Batch(msgspec.structs.replace(found.header, count=len(staying)), left)


def _of(column: BinaryColumn, staying: Sequence[int]) -> BinaryColumn:
    items = column.slice()
    return BinaryColumn.of([items[i] for i in staying])


def _bytes_of(found: Batch) -> int:
    columns = found.columns
    size_bytes = 24 * found.header.count + len(columns.values.data)
    for column in (columns.keys, columns.headers):
        size_bytes += 0 if column is None else len(column.data)
    return size_bytes

"""Rewriting journal entries and old objects into segments and packed objects.

Reads and PUTs, and nothing else: neither appends nor deletes. Every object that it answers with was
read back from the bucket, and holds, record for record, what its inputs held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.broker.ports import EntryRef
from seb_appliance.broker.rewrite_jobs import Asked, RewriteJob, Rewritten, SectionPlace
from seb_appliance.errors import BadBatchError, CorruptObjectError, ObjectMissingError
from seb_appliance.formats import entry, segment
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.operations import ReplacedRange, StoredObject, StoredSection
from seb_appliance.storage import layout
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.merging import Fingerprint, Piece, batches_of, merge
from seb_appliance.storage.object_store import ObjectStore
from seb_appliance.storage.patience import Patience
from seb_appliance.storage.together import together

READS_AT_ONCE: Final = 8
READS_OF_A_BAD_OBJECT: Final = 3  # a bit may have been flipped on the way
_NAMES: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class _Input:
    topic_id: int
    base_offset: int
    last_offset: int
    data: bytes


@dataclass(slots=True)
class _Run:
    """Neighbouring sections of one topic, to be replaced together."""

    topic_id: int
    inputs: list[_Input]

    @property
    def range(self) -> ReplacedRange:
        first, last = self.inputs[0], self.inputs[-1]
        return ReplacedRange(self.topic_id, first.base_offset, last.last_offset)

    @property
    def size_bytes(self) -> int:
        return sum(len(item.data) for item in self.inputs)


@dataclass(slots=True)
class _Section:
    """A section to be, its bytes, and what its records amount to."""

    made: StoredSection
    parts: list[Bytes]


class ObjectRewriter:
    """Fulfils `broker.rewrite_jobs.Rewriter` over a store, in this process."""

    def __init__(self, store: ObjectStore, patience: Patience, mode: Mode) -> None:
        self.asked = Asked()  # nothing: `store` counts for itself, if it counts
        self._store = store
        self._patience = patience
        self._mode = mode
        self._bytes_read = self._bytes_written = 0

    async def rewrite(self, job: RewriteJob) -> Rewritten:
        """See `Rewriter`. About three times the job's bytes are in memory meanwhile."""
        self._bytes_read = self._bytes_written = 0
        inputs = await self._read_entries(job) if job.entries else await self._read_sections(job)
        runs = await asyncio.to_thread(_runs, inputs, job)
        del inputs
        objects: list[StoredObject] = []
        for group in _groups(runs, job.segment_bytes):
            replaced = [run.range for run in group]
            name = (int.from_bytes(job.name, "big") + len(objects)) % _NAMES
            key = _key_of(job, replaced, name.to_bytes(8, "big"))
            made, body, written = await asyncio.to_thread(_build, job, key, group)
            await self._patience.ask(partial(self._store.put, key, body))
            self._bytes_written += len(body)
            del body
            await self._read_back(made, job.bucket_id, written)
            objects.append(made)
        return Rewritten(
            tuple(run.range for run in runs),
            tuple(objects),
            self._bytes_read,
            self._bytes_written,
        )

    async def close(self) -> None:
        """Nothing is held; the store is its owner's to close."""

    async def _get(self, key: str, check: Callable[[bytes], list[_Input]]) -> list[_Input]:
        """What `check` makes of the object; asked again when that says that it is damaged."""
        why = ""
        for _ in range(READS_OF_A_BAD_OBJECT):
            try:
                body = await self._patience.ask(partial(self._store.get, key))
                self._bytes_read += len(body)
                return await asyncio.to_thread(check, body)
            except ObjectMissingError:
                why = "it is not in the bucket"
                break
            except BadBatchError as error:
                why = error.detail
        raise CorruptObjectError(f"{key} cannot be tidied: {why}", object_key=key)

    async def _read_entries(self, job: RewriteJob) -> list[_Input]:
        """Sections of whole entries that living topics can read, in the order of the entries."""
        reads = (
            self._get(layout.object_key(self._mode, ref), partial(_of_entry, ref, job))
            for ref in job.entries
        )
        return [item for inputs in await together(reads, READS_AT_ONCE) for item in inputs]

    async def _read_sections(self, job: RewriteJob) -> list[_Input]:
        inputs: list[_Input] = []
        for key in job.inputs:
            places = [place for place in job.sections if place.key == key]
            inputs += await self._get(key, partial(_of_object, places))
        return inputs

    async def _read_back(
        self, made: StoredObject, bucket_id: bytes, written: dict[tuple[int, int], Fingerprint]
    ) -> None:
        """The object is in the bucket as it was meant, and holds the records of its inputs."""

        def check(body: bytes) -> list[_Input]:
            index = segment.decode(body)
            if index.sections != made.sections or index.bucket_id != bucket_id:
                raise BadBatchError("its index is not the one that was written")
            _check_records(body, index.sections, written)
            return []

        await self._get(made.key, check)


def _of_entry(ref: EntryRef, job: RewriteJob, body: bytes) -> list[_Input]:
    found = entry.decode(body)
    header = found.header
    if (header.seq, header.epoch, header.writer_id) != (ref.seq, ref.epoch, ref.writer_id):
        raise BadBatchError(f"it is entry {header.seq} of epoch {header.epoch}, not {ref.seq}")
    if header.bucket_id != job.bucket_id:
        raise BadBatchError("it is of another bucket")
    inputs = []
    for section in found.contents.sections:
        start = job.log_starts.get(section.topic_id)
        if start is None or section.last_offset < start:
            continue
        data = bytes(entry.section_bytes(header, body, section.start, section.length))
        _check_crc(data, section.crc)
        base, last = section.base_offset, section.last_offset
        inputs.append(_Input(section.topic_id, base, last, data))
    return inputs


def _of_object(places: list[SectionPlace], body: bytes) -> list[_Input]:
    inputs = []
    for place in places:
        data = body[place.at : place.at + place.length]
        _check_crc(data, place.crc)
        inputs.append(_Input(place.topic_id, place.base_offset, place.last_offset, data))
    return inputs


def _check_crc(data: bytes, crc: int) -> None:
    if crc32c(data) != crc:
        raise BadBatchError("the checksum of a section does not agree")


def _runs(inputs: list[_Input], job: RewriteJob) -> list[_Run]:
    """By topic and offset; a run ends where a section of something else lies between."""
    runs: list[_Run] = []
    for item in sorted(inputs, key=lambda item: (item.topic_id, item.base_offset)):
        last = runs[-1].inputs[-1] if runs else None
        if last is not None and (last.topic_id, last.last_offset + 1) == (
            item.topic_id,
            item.base_offset,
        ):
            runs[-1].inputs.append(item)
        else:
            assert not job.entries or last is None or last.topic_id != item.topic_id, (last, item)
            runs.append(_Run(item.topic_id, [item]))
    return runs


def _groups(runs: list[_Run], segment_bytes: int) -> Iterator[list[_Run]]:
    """Runs that share an object: a large one has its own, the small ones fill packed objects."""
    packed: list[_Run] = []
    size_bytes = sections = 0
    for run in runs:
        if run.size_bytes >= min(limits.OWN_SEGMENT_BYTES_MIN, segment_bytes):
            yield [run]
            continue
        needs = 1 + run.size_bytes // limits.SEGMENT_SECTION_BYTES
        full = size_bytes + run.size_bytes > segment_bytes
        if packed and (full or sections + needs > limits.SEGMENT_SECTIONS_MAX // 4):
            yield packed
            packed, size_bytes, sections = [], 0, 0
        packed.append(run)
        size_bytes += run.size_bytes
        sections += needs
    if packed:
        yield packed


def _key_of(job: RewriteJob, replaced: list[ReplacedRange], name: bytes) -> str:
    if len(replaced) == 1:
        only = replaced[0]
        ends = only.base_offset, only.last_offset
        return layout.segment_key(only.topic_id, *ends, job.epoch, name)
    return layout.packed_key(*_seqs(job), job.epoch, name)


def _seqs(job: RewriteJob) -> tuple[int, int]:
    return (job.entries[0].seq, job.entries[-1].seq) if job.entries else (0, 0)


def _build(
    job: RewriteJob, key: str, group: list[_Run]
) -> tuple[StoredObject, bytes, dict[tuple[int, int], Fingerprint]]:
    """The object, its bytes, and by topic id and base offset what the runs' records amount to."""
    if len(group) == 1:
        only = group[0].range
        head = segment.header(only.topic_id, only.base_offset, only.last_offset)
    else:
        head = segment.header(segment.MANY_TOPICS, *_seqs(job))
    parts: list[Bytes] = [head]
    at, sections = len(head), []
    read: dict[tuple[int, int], Fingerprint] = {}
    for run in group:
        print_of_run = read[run.topic_id, run.range.base_offset] = Fingerprint()
        for section in _sections(run, print_of_run, at):
            sections.append(section.made)
            parts += section.parts
            at += section.made.length
    parts.append(segment.trailer(head, sections, job.bucket_id))
    body = b"".join(parts)
    return StoredObject(key, len(body), tuple(sections)), body, read


def _sections(run: _Run, read: Fingerprint, at: int) -> Iterator[_Section]:
    """Sections of about a mebibyte. `read` grows by the records of the inputs."""

    def batches() -> Iterator[tuple[Batch, Bytes]]:
        for item in run.inputs:
            for found, stored in batches_of(item.data, item.base_offset, item.last_offset):
                read.add(found)
                yield found, stored

    pieces: list[Piece] = []
    size_bytes = 0
    for piece in merge(batches()):
        if pieces and size_bytes + len(piece.data) > limits.SEGMENT_SECTION_BYTES:
            yield _section(run.topic_id, pieces, at)
            at, pieces, size_bytes = at + size_bytes, [], 0
        pieces.append(piece)
        size_bytes += len(piece.data)
    yield _section(run.topic_id, pieces, at)


def _section(topic_id: int, pieces: list[Piece], at: int) -> _Section:
    crc = 0
    for piece in pieces:
        crc = crc32c(piece.data, crc)
    made = StoredSection(
        topic_id,
        pieces[0].base_offset,
        pieces[-1].last_offset,
        sum(piece.count for piece in pieces),
        at,
        sum(len(piece.data) for piece in pieces),
        crc,
        max(piece.created_us for piece in pieces),
        max(piece.largest_timestamp_us for piece in pieces),
    )
    return _Section(made, [piece.data for piece in pieces])


def _check_records(
    body: bytes,
    sections: tuple[StoredSection, ...],
    expected: dict[tuple[int, int], Fingerprint],
) -> None:
    """The sections hold the records that `expected` was made of. Raises BadBatchError."""
    found: dict[tuple[int, int], Fingerprint] = {}
    run, next_offset = (-1, -1), -1
    for section in sections:
        if (section.topic_id, section.base_offset) != (run[0], next_offset) or (
            (section.topic_id, section.base_offset) in expected
        ):
            run = (section.topic_id, section.base_offset)
            found[run] = Fingerprint()
        next_offset = section.last_offset + 1
        data = body[section.at : section.at + section.length]
        _check_crc(data, section.crc)
        for decoded, _ in batches_of(data, section.base_offset, section.last_offset):
            found[run].add(decoded)
    if found != expected:
        raise BadBatchError("its records are not those of its inputs")

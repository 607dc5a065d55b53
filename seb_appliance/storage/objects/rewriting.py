"""Rewriting journal entries and old objects into segments and packed objects.

Only reads and PUTs. Every object in the result was read back from the bucket and holds the same
records as its inputs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from seb_appliance import limits
from seb_appliance.broker.ports import EntryRef
from seb_appliance.broker.upkeep.rewrite_jobs import Asked, RewriteJob, Rewritten, SectionPlace
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import entry, segment
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.operations import ReplacedRange, StoredObject
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore, together
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.objects.checked_compactions import check_made
from seb_appliance.storage.objects.checked_objects import READS_AT_ONCE, CheckedObjects, check_crc
from seb_appliance.storage.objects.compacting import compact
from seb_appliance.storage.objects.merging import Fingerprint, ObjectDraft, batches_of, merge


@dataclass(frozen=True, slots=True)
class _Input:
    topic_id: int
    base_offset: int
    last_offset: int
    data: bytes


@dataclass(slots=True)
class _Run:
    """Adjacent sections of one topic, to be replaced together."""

    topic_id: int
    inputs: list[_Input]

    @property
    def range(self) -> ReplacedRange:
        first, last = self.inputs[0], self.inputs[-1]
        return ReplacedRange(self.topic_id, first.base_offset, last.last_offset)

    @property
    def size_bytes(self) -> int:
        return sum(len(item.data) for item in self.inputs)


class ObjectRewriter:
    """A `broker.rewrite_jobs.Rewriter` in this process. `folder`: for record keys that do not fit
    into memory."""

    def __init__(self, store: RetryingStore, mode: Mode, folder: Path) -> None:
        self.asked = Asked()  # nothing: `store` counts for itself, if it counts
        self._store = store
        self._mode = mode
        self._folder = folder

    async def rewrite(self, job: RewriteJob) -> Rewritten:
        """See `Rewriter`. About three times the job's bytes are in memory meanwhile; when it
        compacts, about three times an object's."""
        objects = CheckedObjects(self._store)
        if job.made:
            return await check_made(job, objects, self._folder)
        if job.compactions:
            return await compact(job, objects, self._folder)
        return await self._merge(job, objects)

    async def close(self) -> None:
        """Does nothing: the store is closed by its owner."""

    async def _merge(self, job: RewriteJob, store: CheckedObjects) -> Rewritten:
        inputs = await self._read(job, store)
        runs = await asyncio.to_thread(_runs, inputs, job)
        del inputs
        objects: list[StoredObject] = []
        for group in _groups(runs, job.segment_bytes):
            replaced = [run.range for run in group]
            key = _key_of(job, replaced, layout.numbered(job.name, len(objects)))
            made, body, written = await asyncio.to_thread(_build, job, key, group)
            await store.put(key, body)
            del body
            await store.read_back(made, job.bucket_id, written)
            objects.append(made)
        return Rewritten(
            tuple(run.range for run in runs),
            tuple(objects),
            bytes_read=store.bytes_read,
            bytes_written=store.bytes_written,
        )

    async def _read(self, job: RewriteJob, store: CheckedObjects) -> list[_Input]:
        """The sections of the job's entries that topics can still read, or of its objects."""
        places: dict[str, list[SectionPlace]] = {key: [] for key in job.inputs}
        for place in job.sections:
            places[place.key].append(place)
        reads = [
            store.get(layout.object_key(self._mode, ref), partial(_of_entry, ref, job))
            for ref in job.entries
        ] or [store.get(key, partial(_of_object, within)) for key, within in places.items()]
        return [item for inputs in await together(reads, READS_AT_ONCE) for item in inputs]


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
        check_crc(data, section.crc)
        base, last = section.base_offset, section.last_offset
        inputs.append(_Input(section.topic_id, base, last, data))
    return inputs


def _of_object(places: list[SectionPlace], body: bytes) -> list[_Input]:
    inputs = []
    for place in places:
        data = body[place.at : place.at + place.length]
        check_crc(data, place.crc)
        inputs.append(_Input(place.topic_id, place.base_offset, place.last_offset, data))
    return inputs


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
    """Runs that share an object: a large one has its own, the small ones fill packed objects. A run
    becomes at most twice the sections that its bytes need."""
    packed: list[_Run] = []
    size_bytes = sections = 0
    for run in runs:
        if run.size_bytes >= min(limits.OWN_SEGMENT_BYTES_MIN, segment_bytes):
            yield [run]
            continue
        needs = 1 + run.size_bytes // limits.SEGMENT_SECTION_BYTES
        full = size_bytes + run.size_bytes > segment_bytes
        if packed and (full or sections + needs > limits.SEGMENT_SECTIONS_MAX // 2):
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
    draft = ObjectDraft()
    read: dict[tuple[int, int], Fingerprint] = {}
    for run in group:
        print_of_run = read[run.topic_id, run.range.base_offset] = Fingerprint()
        compress = run.topic_id in job.compressed
        draft.add(run.topic_id, merge(_batches(run, print_of_run), compress=compress))
        draft.end_section()
    if len(group) == 1:
        only = group[0].range
        head = segment.header(only.topic_id, only.base_offset, only.last_offset)
    else:
        head = segment.header(segment.MANY_TOPICS, *_seqs(job))
    body = draft.seal(head, job.bucket_id)
    return StoredObject(key, len(body), tuple(draft.sections)), body, read


def _batches(run: _Run, read: Fingerprint) -> Iterator[tuple[Batch, Bytes]]:
    """Of all inputs. `read` grows by their records."""
    for item in run.inputs:
        for found, stored in batches_of(item.data, item.base_offset, item.last_offset):
            read.add(found)
            yield found, stored

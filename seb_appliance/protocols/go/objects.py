"""Segments and packed objects made of the Go broker's files: the same records, in fewer batches."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from operator import add
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch, segment
from seb_appliance.formats.batch_v1 import BatchV1
from seb_appliance.formats.columns import BinaryColumn, Columns
from seb_appliance.formats.compression import Compressor
from seb_appliance.formats.operations import StoredObject
from seb_appliance.protocols.go.files import OldFile
from seb_appliance.storage import layout
from seb_appliance.storage.objects.checked_objects import CheckedObjects
from seb_appliance.storage.objects.merging import ObjectDraft, Piece

_MERGED_BYTES: Final = 256 * limits.KIB  # of a batch, inflated; as the tidier makes them
_RECORDS_MAX: Final = 65_536
OBJECT_BYTES_MAX: Final = 8 * limits.MIB  # three times this is in memory while it is stored


@dataclass(frozen=True, slots=True)
class Naming:
    """What the keys of objects are made of, and whose they are."""

    bucket_id: bytes
    epoch: int
    random_bytes: Callable[[int], bytes]


class ObjectMaker:
    """One object after another. `compress`: batches that shrink by it. Call `take` with the files
    of one topic after those of another whose id is smaller."""

    def __init__(self, naming: Naming, *, object_bytes: int, compress: bool) -> None:
        self._naming = naming
        self._object_bytes = min(object_bytes, OBJECT_BYTES_MAX)
        self._compressor = Compressor() if compress else None
        self._draft = ObjectDraft()
        self._topic_id = 0
        self._created_us = 0  # of the topic's newest batch: it never decreases
        self._run: list[tuple[OldFile, BatchV1]] = []
        self._run_bytes = self._run_records = 0

    def begin_topic(self, topic_id: int) -> None:
        """The files that come are of this topic."""
        self._end_batch()
        self._draft.end_section()
        self._topic_id, self._created_us = topic_id, 0

    def take(self, one: OldFile, found: BatchV1) -> None:
        """The topic's next file."""
        size_bytes = len(found.values.data) + 12 * one.count
        too_large = self._run_bytes + size_bytes > _MERGED_BYTES
        if self._run and (too_large or self._run_records + one.count > _RECORDS_MAX):
            self._end_batch()
        self._run.append((one, found))
        self._run_bytes += size_bytes
        self._run_records += one.count

    @property
    def is_full(self) -> bool:
        sections = len(self._draft.sections)
        return (
            self._draft.size_bytes >= self._object_bytes
            or sections >= limits.SEGMENT_SECTIONS_MAX // 2
        )

    async def store(self, objects: CheckedObjects) -> StoredObject | None:
        """What was taken since the last one, stored and read back; None: nothing was. Raises
        CorruptObjectError, StoreError."""
        self._end_batch()
        self._draft.end_section()
        sections = tuple(self._draft.sections)
        if not sections:
            return None
        first, last = sections[0], sections[-1]
        naming = self._naming
        name = naming.random_bytes(8)
        if first.topic_id == last.topic_id:
            place = first.topic_id, first.base_offset, last.last_offset
            key = layout.segment_key(*place, naming.epoch, name)
        else:
            place = segment.MANY_TOPICS, 0, 0
            key = layout.packed_key(0, 0, naming.epoch, name)
        body = self._draft.seal(segment.header(*place), naming.bucket_id)
        self._draft = ObjectDraft()

        def check(stored: bytes) -> None:
            if stored != body:
                raise BadBatchError("it is not what was written")

        await objects.put(key, body)
        await objects.get(key, check)
        return StoredObject(key, len(body), sections)

    def _end_batch(self) -> None:
        """Make one batch of the run."""
        if not self._run:
            return
        files = [one for one, _ in self._run]
        self._created_us = max(self._created_us, *(one.created_us for one in files))
        data = batch.encode(
            _joined(self._run), base_offset=files[0].base_offset, created_us=self._created_us
        )
        if self._compressor is not None:
            data = self._compressor.pack(data)
        piece = Piece(
            files[0].base_offset,
            files[-1].end_offset - 1,
            self._run_records,
            self._created_us,
            max(one.created_us for one in files),
            data,
        )
        self._draft.add(self._topic_id, [piece])
        self._run, self._run_bytes, self._run_records = [], 0, 0


def _joined(run: list[tuple[OldFile, BatchV1]]) -> Columns:
    """All records, each with its file's time as its timestamp."""
    timestamps_us, starts = array("q"), array("i")
    at = 0
    for one, found in run:
        timestamps_us.extend(array("q", [one.created_us]) * one.count)
        starts.extend(map(add, found.values.starts[:-1], repeat(at)))
        at += len(found.values.data)
    starts.append(at)
    data = b"".join(found.values.data for _, found in run)
    return Columns(timestamps_us, BinaryColumn(starts, data))

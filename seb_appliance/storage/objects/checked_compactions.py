"""Checking compactions that others made, before they come into force.

All records of the range and of its replacement are read side by side. Of each record key exactly
the newest must be there, unchanged, at its offset, because the inputs are deleted afterwards.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.upkeep.rewrite_jobs import (
    Compaction,
    ExternalSegment,
    RewriteJob,
    Rewritten,
    SectionPlace,
)
from seb_appliance.errors import BadBatchError, CorruptObjectError
from seb_appliance.formats import segment
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.operations import ReplacedRange, StoredObject, StoredSection
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import together
from seb_appliance.storage.objects.checked_objects import READS_AT_ONCE, CheckedObjects
from seb_appliance.storage.objects.compacting import (
    NewestRecords,
    Sections,
    Survivors,
    picked,
    read_sections,
)
from seb_appliance.storage.objects.merging import Fingerprint, batches_of

_TAIL_BYTES: Final = 64 * 1024  # of a segment's end: the index of 900 sections


async def check_made(job: RewriteJob, store: CheckedObjects, folder: Path) -> Rewritten:
    """Checks the job's `made`, which is to replace the range of its compaction. `folder`: for
    record keys that do not fit into memory. Raises CorruptObjectError, StoreError, OSError."""
    (item,) = job.compactions
    objects = await together((_index(made, job, store) for made in job.made), READS_AT_ONCE)
    sections = [(found.key, section) for found in objects for section in found.sections]
    try:
        _check_cover(item, [section for _, section in sections])
        newest = NewestRecords(folder)
        try:
            checker = _Checker(item, job.log_starts.get(item.topic_id, 0), newest)
            await _compare(job, sections, checker, store)
        finally:
            newest.close()
    except BadBatchError as error:
        raise CorruptObjectError(f"the external compaction is wrong: {error.detail}") from error
    return Rewritten(
        (ReplacedRange(item.topic_id, item.base_offset, item.last_offset),),
        tuple(objects),
        checker.read - checker.kept,
        store.bytes_read,
    )


async def _compare(
    job: RewriteJob,
    sections: list[tuple[str, StoredSection]],
    checker: _Checker,
    store: CheckedObjects,
) -> None:
    """Reads the replacement as far ahead as the inputs require."""
    made = read_sections([_place(key, section) for key, section in sections], store)
    rows = {section.base_offset: section for _, section in sections}
    async for inputs in read_sections(job.sections, store):
        while checker.made_until < inputs[-1][0].last_offset:
            await asyncio.to_thread(checker.take_made, await anext(made), rows)
        await asyncio.to_thread(checker.take, inputs)
    await asyncio.to_thread(checker.finish)


async def _index(made: ExternalSegment, job: RewriteJob, store: CheckedObjects) -> StoredObject:
    topic_id = job.compactions[0].topic_id

    def check(body: bytes) -> segment.SegmentIndex:
        index = segment.read_index(head, body, made.length)
        if (index.topic_id, index.bucket_id) != (topic_id, job.bucket_id):
            raise BadBatchError("a segment belongs to another topic or another bucket")
        ends = index.sections[0].base_offset, index.sections[-1].last_offset
        if not (index.base, index.last) == ends == (made.base_offset, made.last_offset):
            raise BadBatchError("a segment covers other offsets than it was announced with")
        if not layout.is_key_of(made.key, topic_id, *ends):
            raise BadBatchError("the key of a segment names other offsets")
        return index

    head = await store.get_range(made.key, 0, segment.HEADER_BYTES, bytes)
    tail_bytes = min(made.length, _TAIL_BYTES)
    needs = await store.get_range(
        made.key, made.length - tail_bytes, tail_bytes, segment.index_bytes
    )
    tail_bytes = min(made.length, max(tail_bytes, needs))
    index = await store.get_range(made.key, made.length - tail_bytes, tail_bytes, check)
    return StoredObject(made.key, made.length, index.sections)


def _place(key: str, section: StoredSection) -> SectionPlace:
    return SectionPlace(
        key,
        section.topic_id,
        section.base_offset,
        section.last_offset,
        section.at,
        section.length,
        section.crc,
    )


def _check_cover(item: Compaction, sections: list[StoredSection]) -> None:
    """Raises BadBatchError unless they answer for each offset of the range once."""
    ends = sections[0].base_offset, sections[-1].last_offset
    if ends != (item.base_offset, item.last_offset):
        raise BadBatchError(
            f"the segments cover the offsets {ends}, not the range of the compaction"
        )
    for before, behind in pairwise(sections):
        if behind.base_offset != before.last_offset + 1:
            raise BadBatchError(
                f"a section begins at {behind.base_offset}, not at {before.last_offset + 1}"
            )


class _Checker:
    """Takes batches of both sides in the order of their offsets. `read` and `kept`: records so far.
    `made_until`: the last offset that the batches taken of the replacement answer for."""

    def __init__(self, item: Compaction, log_start_offset: int, newest: NewestRecords) -> None:
        self.read = self.kept = 0
        self.made_until = item.base_offset - 1
        self._item = item
        self._log_start_offset = log_start_offset
        self._newest = newest
        self._kept, self._over = Survivors(), Survivors()
        self._expected, self._found = Fingerprint(), Fingerprint()
        self._made: list[_MadeBatch] = []

    def take_made(self, sections: Sections, rows: dict[int, StoredSection]) -> None:
        """The next sections of the replacement; `rows`: of the indexes, by base offset."""
        for place, data in sections:
            batches = [found for found, _ in batches_of(data, place.base_offset, place.last_offset)]
            _check_row(rows[place.base_offset], batches)
            for found in batches:
                self._found.add(found)
                self._made.append(_MadeBatch(found))
            self.made_until = place.last_offset

    def take(self, sections: Sections) -> None:
        """The next sections of the inputs."""
        for place, data in sections:
            for found, _ in batches_of(data, place.base_offset, place.last_offset):
                self._take(found)

    def finish(self) -> None:
        """Everything was taken. Raises BadBatchError."""
        for made in self._made:
            made.check_done()
        if self._found != self._expected:
            raise BadBatchError("it has records that the topic does not have")
        survivors = self._newest.finish()
        if not survivors.are_left_by(self._kept, self._over):
            raise BadBatchError(
                f"of {self.read} records, {survivors.count} must stay except for old tombstones, "
                "because they are the newest of their record key or have none; the segments "
                f"have {self.kept} records"
            )
        if self.read and not self._kept.among(self.read - 1, 1):
            raise BadBatchError("the last record of the range must stay")

    def _take(self, found: Batch) -> None:
        offsets, keys = found.offsets(), found.columns.keys
        skipped = bisect_left(offsets, self._log_start_offset)
        first, self.read = self.read, self.read + len(offsets) - skipped
        items: list[bytes | None] = [None] * len(offsets)
        if keys is not None:
            items = keys.slice()
        self._newest.add(items[skipped:])
        for bits in (self._kept, self._over):
            bits.reach(self.read)
        staying: list[int] = []
        for made in self._reached(found.header.last_offset):
            wanted = made.until(found.header.last_offset)
            staying += _places_of(wanted, offsets, skipped)
            if wanted:
                made.created_us = max(made.created_us, found.header.created_us)
        self.kept += len(staying)
        self._kept.keep(first + i - skipped for i in staying)
        self._note_over(found, items, first, skipped)
        if staying:
            self._expected.add(picked(found, staying))

    def _reached(self, last_offset: int) -> Iterator[_MadeBatch]:
        """Batches with offsets up to `last_offset`; completed ones are checked and removed."""
        while self._made and self._made[0].is_done:
            self._made.pop(0).check_done()
        for made in self._made:
            if made.base_offset > last_offset:
                return
            yield made

    def _note_over(self, found: Batch, keys: list[bytes | None], first: int, skipped: int) -> None:
        """Tombstones that are past their retention and may be left out. `first`: the number of the
        first record that was not `skipped`."""
        until_us, values = self._item.tombstones_until_us, found.columns.values
        if until_us is None or values.valid is None or found.header.created_us > until_us:
            return
        self._over.keep(
            first + i - skipped
            for i in range(skipped, found.header.count)
            if values.is_null(i)
            and keys[i] is not None
            and found.offsets()[i] < self._item.tombstones_below
        )


def _places_of(wanted: list[int], offsets: Sequence[int], skipped: int) -> list[int]:
    """The index in `offsets` of each wanted offset, after the first `skipped`. Raises
    BadBatchError."""
    places = [bisect_left(offsets, offset, lo=skipped) for offset in wanted]
    for place, offset in zip(places, wanted, strict=True):
        if place == len(offsets) or offsets[place] != offset:
            raise BadBatchError(f"it has a record at {offset}, where the topic has none")
    return places


class _MadeBatch:
    """A batch of the replacement, while its inputs are being read."""

    def __init__(self, found: Batch) -> None:
        self.base_offset = found.header.base_offset
        self._header = found.header
        self._offsets = found.offsets()
        self._at = 0
        self.created_us = 0  # the newest of its inputs so far

    @property
    def is_done(self) -> bool:
        return self._at == len(self._offsets)

    def until(self, last_offset: int) -> list[int]:
        """Its next offsets, up to this one."""
        begin, self._at = self._at, bisect_right(self._offsets, last_offset, lo=self._at)
        return list(self._offsets[begin : self._at])

    def check_done(self) -> None:
        """Raises BadBatchError."""
        if not self.is_done or self.created_us != self._header.created_us:
            raise BadBatchError(
                f"the creation time of the batch at {self.base_offset} is not that of its newest "
                "record"
            )


def _check_row(row: StoredSection, batches: list[Batch]) -> None:
    """Raises BadBatchError unless the index describes this section."""
    if row.length > limits.ENTRY_BYTES_MAX:
        raise BadBatchError(f"a section has {row.length} bytes, which is too large to read")
    headers = [found.header for found in batches]
    if (row.record_count, row.created_us, row.largest_timestamp_us) != (
        sum(header.count for header in headers),
        max(header.created_us for header in headers),
        max(header.largest_timestamp_us for header in headers),
    ):
        raise BadBatchError(f"the index has a wrong entry for the section at {row.base_offset}")

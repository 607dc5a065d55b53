"""The work on lake tables: reads the log, writes data files, and prints metadata.

It only reads and PUTs; what it made counts once its event is in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from seb_appliance import limits
from seb_appliance.broker.lake.jobs import (
    BadRow,
    Part,
    Printed,
    PrintedObject,
    PrintJob,
    RowWriter,
    TableFormats,
    WriteJob,
    Written,
)
from seb_appliance.broker.lake.names import data_name, next_names
from seb_appliance.broker.lake.table import LakeTable, TableHead
from seb_appliance.broker.upkeep.rewrite_jobs import Asked
from seb_appliance.errors import ObjectExistsError, ObjectMissingError, StoreUncertainError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.lake.tables import TableFile, TableRange
from seb_appliance.formats.operations import TableCommitted
from seb_appliance.storage.journal.retry import RetryingStore, together
from seb_appliance.storage.layout import Mode, numbered
from seb_appliance.storage.objects.checked_objects import CheckedObjects, check_crc
from seb_appliance.storage.objects.merging import batches_of

_READ_BYTES: Final = 4 * limits.MIB  # in one request
_READS_AHEAD: Final = 2
_BAD_ROWS_SHOWN: Final = 10
# What readers follow: hint, Delta's log and checkpoint, metadata, list, and some manifests.
_LOOKED_AT: Final = 8
_CREATES: Final = 8  # of an object that the store says exists, and does not have


@dataclass(frozen=True, slots=True)
class _Read:
    """Sections that lie one after the other in an object."""

    key: str
    parts: tuple[Part, ...]

    @property
    def at(self) -> int:
        return self.parts[0].place.at

    @property
    def length(self) -> int:
        last = self.parts[-1].place
        return last.at + last.length - self.at


class TableWork:
    """A `broker.lake.jobs.TableWriter` in this process."""

    def __init__(
        self, store: RetryingStore, mode: Mode, formats: TableFormats, failpoints: Failpoints
    ) -> None:
        self.asked = Asked()  # nothing: `store` counts for itself, if it counts
        self.rss_bytes = 0
        self._store = store
        self._mode = mode
        self._formats = formats
        self._failpoints = failpoints

    async def close(self) -> None:
        """Does nothing: the store is closed by its owner."""

    async def write(self, job: WriteJob) -> Written:
        """See `TableWriter`."""
        objects = CheckedObjects(self._store)
        number = job.head.number + 1
        added, bad, upto = list[TableFile](), list[BadRow](), job.end
        if job.parts:
            added, bad, upto = await self._rows(job, objects)
        elif job.merged:
            added = [await self._merge(job, objects)]
        ranges: tuple[TableRange, ...] = ()
        if job.op == "append":
            ranges = (TableRange(job.head.definition.topic_id, job.first, upto),)
        commit = TableCommitted(
            table_id=job.head.table_id,
            number=number,
            op=job.op,
            ranges=ranges,
            added=tuple(added),
            removed=job.removed,
            rewritten=job.rewritten,
            oldest=job.oldest,
        )
        commit = replace(commit, manifest_bytes=await asyncio.to_thread(self._lengths, job, commit))
        self._failpoints.reach("T1")
        return Written(commit, tuple(bad), objects.bytes_read, objects.bytes_written)

    async def _rows(
        self, job: WriteJob, objects: CheckedObjects
    ) -> tuple[list[TableFile], list[BadRow], int]:
        """Data files of the records from `first` on, and their end. An append makes one file: when
        it is full, the rest is for the next commit."""
        added, bad = list[TableFile](), list[BadRow]()
        writer, begin = self._writer(job), job.first
        inflated = 0
        async for batch, end in self._batches(job, objects):
            await asyncio.to_thread(writer.add, batch, job.first, end)
            upto = min(batch.header.last_offset + 1, end)
            inflated += batch.header.inflated_bytes
            # Other tables wait: 64 MiB of zeros may be 300 GB of rows.
            is_long = job.op == "append" and inflated >= limits.TABLE_JOB_INFLATED_BYTES
            if writer.is_full or is_long:
                added += await self._finished(job, objects, writer, (begin, upto), len(added))
                bad += [BadRow(*row) for row in writer.bad_rows]
                writer, begin = self._writer(job), upto
                if job.op == "append":
                    break
        else:
            added += await self._finished(job, objects, writer, (begin, job.end), len(added))
            bad += [BadRow(*row) for row in writer.bad_rows]
            begin = job.end
        return added, bad[:_BAD_ROWS_SHOWN], begin

    def _writer(self, job: WriteJob) -> RowWriter:
        return self._formats.writer(job.head.schemas[-1], job.head.schema, job.file_bytes)

    async def _finished(
        self,
        job: WriteJob,
        objects: CheckedObjects,
        writer: RowWriter,
        offsets: tuple[int, int],
        number: int,
    ) -> list[TableFile]:
        """The stored file for the offsets (end exclusive); none if a compacted topic has no record
        there."""
        if not writer.records:
            return []
        body, made = await asyncio.to_thread(writer.finish)
        made = replace(made, first_offset=offsets[0], last_offset=offsets[1] - 1, as_of=job.as_of)
        return [await self._put(job, objects, body, made, number)]

    async def _merge(self, job: WriteJob, objects: CheckedObjects) -> TableFile:
        by_name = {one.file.name: one.file for one in job.touched}
        inputs = [by_name[name] for name in job.merged]
        head = job.head
        bodies = [await objects.get(head.key_of(one.name), bytes) for one in inputs]
        columns = head.schemas[inputs[0].schema]
        body, made = await asyncio.to_thread(self._formats.merged, bodies, columns, inputs)
        assert made.records == sum(one.records for one in inputs), (made, inputs)
        return await self._put(job, objects, body, made)

    async def _put(
        self,
        job: WriteJob,
        objects: CheckedObjects,
        body: bytes,
        made: TableFile,
        number: int = 0,
    ) -> TableFile:
        name = data_name(made.first_offset, made.last_offset, numbered(job.name, number))
        made = replace(made, name=name, length=len(body))
        await objects.put(job.head.key_of(made.name), body)
        return made

    async def _batches(
        self, job: WriteJob, objects: CheckedObjects
    ) -> AsyncIterator[tuple[Batch, int]]:
        """The batches that have records of the job, each with the end of those."""
        reads = list(_reads(job.parts))
        ahead = [asyncio.create_task(_read(objects, one)) for one in reads[:_READS_AHEAD]]
        try:
            for i in range(len(reads)):
                sections = await ahead.pop(0)
                if i + _READS_AHEAD < len(reads):
                    ahead.append(asyncio.create_task(_read(objects, reads[i + _READS_AHEAD])))
                for part, data in sections:
                    place = part.place
                    batches = batches_of(data, place.base_offset, place.last_offset)
                    while (found := await asyncio.to_thread(next, batches, None)) is not None:
                        header = found[0].header
                        end = min(part.end, job.end)
                        if header.last_offset >= job.first and header.base_offset < end:
                            yield found[0], end
        finally:
            for task in ahead:
                task.cancel()

    # --- metadata ---

    async def print(self, job: PrintJob) -> Printed:
        """See `TableWriter`."""
        objects = await asyncio.to_thread(self._formats.objects, job)
        if job.is_first and await self._are_stored(objects[-_LOOKED_AT:]):
            return Printed(foreign=await self._later(job.head))
        for i, one in enumerate(objects):
            if not await self._store_printed(one, repair=job.repair):
                return Printed(foreign=one.key)
            self._failpoints.reach(f"T{min(3 + i, 8)}")
        return Printed(objects=len(objects))

    async def _later(self, head: TableHead) -> str:
        """What someone else wrote as the next commit, "" for nothing: the next one of ours would
        find it, but a topic may be idle for long."""
        for name in next_names(head):
            with suppress(ObjectMissingError):
                await self._store.head(head.key_of(name))
                return head.key_of(name)
        return ""

    async def _are_stored(self, objects: Sequence[PrintedObject]) -> bool:
        async def is_stored(one: PrintedObject) -> bool:
            try:
                return await self._store.get(one.key) == one.body
            except ObjectMissingError:
                return False

        return all(await together(map(is_stored, objects), _LOOKED_AT))

    def _lengths(self, job: WriteJob, commit: TableCommitted) -> tuple[int, ...]:
        """Of the manifests that the commit writes; 0 where none is printed."""
        table = LakeTable(job.head, {one.file.name: one for one in job.touched}).copy()
        groups = table.manifests_after(commit)
        if "iceberg" not in job.head.definition.formats:
            return (0,) * len(groups)
        return tuple(len(self._formats.manifest(job.head, *group)) for group in groups)

    async def _store_printed(self, one: PrintedObject, *, repair: bool) -> bool:
        """False if someone else's object is there."""
        if repair or not one.create_only:
            await self._store.put(one.key, one.body)
            return True
        for _ in range(_CREATES):
            if self._mode == "A":
                with suppress(ObjectExistsError):
                    await self._store.create(one.key, one.body)
                    return True
            try:
                return await self._store.get(one.key) == one.body
            except ObjectMissingError:
                if self._mode == "B":  # the journal's fencing decides who writes
                    await self._store.put(one.key, one.body)
                    return True
        raise StoreUncertainError("the store answered 412, then 404", key=one.key)


def _reads(parts: Sequence[Part]) -> Iterator[_Read]:
    """Neighbouring sections of an object are read together."""
    for key, group in groupby(parts, key=lambda part: part.place.key):
        run: list[Part] = []
        for part in group:
            place = part.place
            if run:
                first, last = run[0].place, run[-1].place
                follows = last.at + last.length == place.at
                if not follows or place.at + place.length - first.at > _READ_BYTES:
                    yield _Read(key, tuple(run))
                    run = []
            run.append(part)
        yield _Read(key, tuple(run))


async def _read(objects: CheckedObjects, one: _Read) -> list[tuple[Part, bytes]]:
    return await objects.get_range(one.key, one.at, one.length, partial(_checked, one))


def _checked(one: _Read, data: bytes) -> list[tuple[Part, bytes]]:
    found = []
    for part in one.parts:
        at = part.place.at - one.at
        section = data[at : at + part.place.length]
        check_crc(section, part.place.crc)
        found.append((part, section))
    return found

"""The files of a data directory that no server holds, compared with the bucket.

All of them may be lost; `repair` replaces those that differ. The key index is compared by samples,
some sections of each topic in both directions, or completely with a rebuilt index.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Final

from crc32c import crc32c

from seb_appliance.broker.ports import LoadedState, TopicRow
from seb_appliance.broker.record_keys.indexing import IndexedTopic, IndexRange
from seb_appliance.broker.values import BatchSlice
from seb_appliance.errors import (
    BadBatchError,
    ConfigurationError,
    CorruptObjectError,
    ObjectMissingError,
)
from seb_appliance.formats.batch import Batch
from seb_appliance.ops.checks.coverage import Coverage, Place
from seb_appliance.ops.checks.findings import Findings, Problem
from seb_appliance.ops.checks.objects import check_entry
from seb_appliance.ops.checks.reference import Reference, StateFile, read_state
from seb_appliance.state import files
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.files import KEY_INDEX
from seb_appliance.state.record_keys import rows
from seb_appliance.state.record_keys.index import SqliteKeyIndex
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.merging import batches_of

_SAMPLED: Final = 16  # sections of each topic
_IN_RANGE: Final = """
SELECT key, offset, timestamp_us, tombstone, first, crc FROM latest INDEXED BY latest_by_offset
WHERE topic_id = ? AND offset BETWEEN ? AND ? ORDER BY offset
"""
_ALL: Final = """
SELECT key, offset, timestamp_us FROM latest
WHERE topic_id = ? AND offset >= ? AND offset < ? AND NOT tombstone ORDER BY key
"""


class _Different(Exception):  # noqa: N818 - an answer, not a failure
    pass


class KeyIndexCheck:
    """`path` is open in no other process. `checked`: how many sections were compared."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        store: RetryingStore,
        coverage: Coverage,
        findings: Findings,
    ) -> None:
        self.checked = 0
        self._path = path
        self._folder = folder
        self._store = store
        self._coverage = coverage
        self._findings = findings

    async def run(self, state: LoadedState, bucket_id: bytes, *, full: bool) -> None:
        """Compare the file with the log as of `state`."""
        try:
            index = await asyncio.to_thread(self._open, bucket_id)
        except (CorruptObjectError, sqlite3.Error) as error:
            self._findings.add("key_index_damaged", KEY_INDEX, str(error))
            return
        with closing(index):
            try:
                known = rows.topics(index)
                for topic in state.topics:
                    indexed = known.get(topic.topic_id)
                    if indexed is None or topic.deleted:  # what is left of it is soon forgotten
                        continue
                    if indexed.mode == topic.settings.key_index:
                        check = self._compare if full else self._sample
                        await check(index, topic, indexed)
            except _Different as difference:
                self._findings.add("key_index_differs", KEY_INDEX, str(difference))
            except (CorruptObjectError, sqlite3.Error) as error:
                self._findings.add("key_index_damaged", KEY_INDEX, str(error))

    def _open(self, bucket_id: bytes) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False)
        rows.check_identity(connection, bucket_id)
        files.check_pages(connection)
        return connection

    async def _sample(
        self, index: sqlite3.Connection, topic: TopicRow, indexed: IndexedTopic
    ) -> None:
        places = [place async for place in self._places(topic, indexed)]
        step = max(1, len(places) // _SAMPLED)
        for place in places[::-1][::step]:
            batches = await self._batches(place)
            await asyncio.to_thread(self._look_up, index, topic, indexed, place, batches)

    def _look_up(
        self,
        index: sqlite3.Connection,
        topic: TopicRow,
        indexed: IndexedTopic,
        place: Place,
        batches: list[Batch],
    ) -> None:
        """Each record key of the section is indexed with this record or a newer one, and each row
        that points into the section points at such a record."""
        self.checked += 1
        end = min(indexed.indexed_offset, place.answers_until)
        start = topic.log_start_offset
        here: dict[int, tuple[bytes, int, bool]] = {}
        for batch in batches:
            whole = BatchSlice(batch, 0, batch.header.count, memoryview(b""))
            for key, offset, timestamp_us, tombstone in rows.keyed(whole):
                if start <= offset < end:
                    here[offset] = key, timestamp_us, tombstone
        for offset, (key, timestamp_us, tombstone) in here.items():
            newest = rows.find(index, topic.topic_id, key)
            if newest is None and indexed.mode == "latest":
                continue  # a later tombstone ended it
            if newest is None or newest[0] < offset:
                raise _Different(f"topic {topic.name}: it lacks the record at offset {offset}")
            if newest[0] == offset and newest[1:3] != (timestamp_us, tombstone):
                raise _Different(f"topic {topic.name}: another record at offset {offset}")
        found = index.execute(_IN_RANGE, (topic.topic_id, max(place.base, start), end - 1))
        for key, *row in found:
            newest = rows.checked_row(topic.topic_id, key, row)
            if newest[0] not in here or here[newest[0]][0] != key:
                raise _Different(f"topic {topic.name}: no such record key at offset {newest[0]}")

    async def _compare(
        self, index: sqlite3.Connection, topic: TopicRow, indexed: IndexedTopic
    ) -> None:
        """A rebuilt index of this topic must have the same newest records."""
        path = self._folder / KEY_INDEX
        fresh = await SqliteKeyIndex.open(path, b"", trusted=False)
        try:
            offset = topic.log_start_offset
            await fresh.begin(topic.topic_id, IndexedTopic(indexed.mode, offset))
            async for place in self._places(topic, indexed):
                batches = await self._batches(place)
                next_offset = min(place.answers_until, indexed.indexed_offset)
                slices = [_cut(batch, offset, next_offset) for batch in batches]
                await fresh.add([IndexRange(topic.topic_id, offset, next_offset, slices)], {})
                offset = next_offset
                self.checked += 1
        finally:
            await fresh.close()
        with closing(sqlite3.connect(path, check_same_thread=False)) as made:
            await asyncio.to_thread(_same_rows, index, made, topic, indexed)

    async def _places(self, topic: TopicRow, indexed: IndexedTopic) -> AsyncIterator[Place]:
        async for place in self._coverage.places(topic):
            if place.base < indexed.indexed_offset and place.last >= topic.log_start_offset:
                yield place

    async def _batches(self, place: Place) -> list[Batch]:
        """None of a damaged or missing section: it is reported elsewhere."""
        try:
            data = (await self._store.get_range(place.key, place.at, place.length)).data
            if crc32c(data) != place.crc:
                return []
            found = await asyncio.to_thread(list, batches_of(data, place.base, place.last))
        except (ObjectMissingError, BadBatchError):
            return []
        return [batch for batch, _ in found]


def _cut(batch: Batch, begin_offset: int, end_offset: int) -> BatchSlice:
    """The records of a batch from `begin_offset` up to `end_offset` (exclusive)."""
    offsets = batch.offsets()
    begin, end = bisect_left(offsets, begin_offset), bisect_left(offsets, end_offset)
    return BatchSlice(batch, begin, end, memoryview(b""))


def _same_rows(
    index: sqlite3.Connection, made: sqlite3.Connection, topic: TopicRow, indexed: IndexedTopic
) -> None:
    def newest(connection: sqlite3.Connection) -> Iterator[tuple[bytes, int, int]]:
        bounds = (topic.topic_id, topic.log_start_offset, indexed.indexed_offset)
        return iter(connection.execute(_ALL, bounds))

    for ours, theirs in zip_longest(newest(made), newest(index)):
        if ours != theirs:
            offset = (ours or theirs or (b"", 0, 0))[1]
            raise _Different(f"topic {topic.name}: its rows and the log differ at offset {offset}")


STATE: Final = "state.sqlite"
_BESIDE: Final = ("", "-wal")


class LocalFiles:
    """`data`: the data directory, locked by us."""

    def __init__(self, data: Path, folder: Path, findings: Findings) -> None:
        self.key_index = data / KEY_INDEX
        self._data = data
        self._folder = folder  # for copies
        self._findings = findings
        self._state: StateFile | None = None

    async def read_state(self) -> int | None:
        """Check a copy of the state file; returns the seq of its last entry."""
        path = self._data / STATE
        if not path.exists():
            return None
        copy = self._folder / "local.sqlite"
        for suffix in _BESIDE:
            source = path.with_name(path.name + suffix)
            if source.exists():
                await asyncio.to_thread(shutil.copyfile, source, copy.with_name(copy.name + suffix))
        try:
            self._state = await read_state(copy)
        except CorruptObjectError as error:
            self._findings.add("state_damaged", STATE, error.detail)
            return None
        finally:
            await asyncio.to_thread(files.remove, copy)
        return self._state.position.seq

    async def compare_state(self, reference: Reference) -> None:
        """The state must equal a replay of the journal up to its entry. Raises ConfigurationError
        for a data directory of another bucket."""
        found = self._state
        if found is None or found.position.seq == 0:
            return
        end_seq = (await reference.database.position()).seq
        if found.bucket_id != reference.bucket_id:
            raise ConfigurationError(
                f"the data directory {self._data} belongs to another bucket. Choose the right one "
                "with --data, or leave it out with --bucket-only."
            )
        if found.position.seq > end_seq and reference.is_whole:
            detail = f"the local state knows entry {found.position.seq}, the log ends at {end_seq}"
            self._findings.add("log_cut_short", STATE, detail)
        elif reference.is_whole and not await reference.log.holds(found.position):
            self._findings.add("state_differs", STATE, "its last entry is not on the log")
        else:
            digest = reference.digest_at(found.position.seq)
            if digest and found.digest and digest != found.digest:
                detail = f"it differs from a replay of the journal up to entry {found.position.seq}"
                self._findings.add("state_differs", STATE, detail)

    def check_cache(self, bucket_id: bytes) -> int:
        """Check the whole entries in the cache; returns how many."""
        checked = 0
        for path in sorted((self._data / "cache" / bucket_id.hex()).glob("*.entry")):
            seq = path.name.removesuffix(".entry")
            if not seq.isdigit():  # of a segment
                continue
            verdict = check_entry(layout.create_only_key(int(seq)), path.read_bytes(), bucket_id)
            checked += 1
            if verdict.faults:
                name = str(path.relative_to(self._data))
                self._findings.add("cache_damaged", name, verdict.faults[0])
        return checked

    async def repair(self, reference: Reference, problems: list[Problem]) -> list[str]:
        """Replace or remove what is damaged; returns what was done, in words."""
        done: list[str] = []
        for problem in problems:
            if problem.code in ("state_damaged", "state_differs") and reference.is_whole:
                done.append(await self._replace_state(reference))
            elif problem.code in ("key_index_damaged", "key_index_differs"):
                await asyncio.to_thread(files.remove, self.key_index)
                done.append(f"{KEY_INDEX} was removed: the next start rebuilds it from the log")
            elif problem.code == "cache_damaged":
                (self._data / problem.subject).unlink(missing_ok=True)
                done.append(f"{problem.subject} was removed: the next read fetches it again")
        return done

    async def _replace_state(self, reference: Reference) -> str:
        path, fresh = self._data / STATE, self._folder / "fresh.sqlite"
        position = await reference.database.save(fresh)
        moved_to = await asyncio.to_thread(files.move_aside, path)
        try:
            database = await StateDatabase.open(path)
            await database.restore(fresh)
            await database.close()
        finally:
            await asyncio.to_thread(files.remove, fresh)
        return (
            f"{STATE} was rebuilt from the bucket, as of entry {position.seq}; "
            f"the old one is {moved_to.name}"
        )

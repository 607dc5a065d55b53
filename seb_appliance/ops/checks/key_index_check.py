"""Whether the key index says what the log says. Sampled: some sections of each topic, both ways;
full: an index made anew from the log, in a file beside, and compared row for row."""

from __future__ import annotations

import asyncio
import sqlite3
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Final

from crc32c import crc32c

from seb_appliance.broker.ports import LoadedState, TopicRow
from seb_appliance.broker.record_keys.key_index import IndexedTopic, IndexRange
from seb_appliance.broker.values import BatchSlice
from seb_appliance.errors import BadBatchError, CorruptObjectError, ObjectMissingError
from seb_appliance.formats.batch import Batch
from seb_appliance.ops.checks.coverage import Coverage, Place
from seb_appliance.ops.checks.findings import Findings
from seb_appliance.state import key_index_rows as rows
from seb_appliance.state.key_index import SqliteKeyIndex
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.merging import batches_of

FILE: Final = "keyindex.sqlite"
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
    """`path` is open in no other process. `checked`: sections whose records were looked up."""

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
        """Hold the file against the log as of `state`."""
        try:
            index = await asyncio.to_thread(self._open, bucket_id)
        except (CorruptObjectError, sqlite3.Error) as error:
            self._findings.add("key_index_damaged", FILE, str(error))
            return
        with closing(index):
            try:
                known = rows.topics(index)
                for topic in state.topics:
                    indexed = known.get(topic.topic_id)
                    if indexed is not None and indexed.mode == topic.settings.key_index:
                        check = self._compare if full else self._sample
                        await check(index, topic, indexed)
            except _Different as difference:
                self._findings.add("key_index_differs", FILE, str(difference))
            except (CorruptObjectError, sqlite3.Error) as error:
                self._findings.add("key_index_damaged", FILE, str(error))

    def _open(self, bucket_id: bytes) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != rows.VERSION:
            raise CorruptObjectError(f"it is of version {version}")
        if connection.execute("SELECT bucket_id FROM about").fetchall() != [(bucket_id,)]:
            raise CorruptObjectError("it is of another bucket")
        problems = connection.execute("PRAGMA integrity_check(1)").fetchall()
        if problems != [("ok",)]:
            raise CorruptObjectError(f"its pages do not agree: {problems[0][0]}")
        return connection

    # --- sampled ---

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
        """Each record key of the section is known, with this record or a newer one; and each row
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

    # --- full ---

    async def _compare(
        self, index: sqlite3.Connection, topic: TopicRow, indexed: IndexedTopic
    ) -> None:
        """An index of this topic made anew must have the same newest records."""
        path = self._folder / FILE
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
        """Damaged and missing sections are told elsewhere: here they have no records."""
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

"""Rows of the index in memory and in pages of SQLite: any offset is found, whatever the log holds.

The broker's catalog and the real state file, with pages of a few entries.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import SectionRef
from seb_appliance.broker.read import sections as index_module
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.errors import CorruptObjectError, TopicNotFoundError
from seb_appliance.formats.contents import Section
from seb_appliance.formats.operations import TopicDeleted
from seb_appliance.state import checks
from seb_appliance.state.database import StateDatabase
from tests.unit.state.journal import START_US, Journal, section, topic_created

PAGE_ENTRIES = 8


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEX_PAGE_ENTRIES", PAGE_ENTRIES)
    monkeypatch.setattr(index_module, "KEPT_ROWS_MAX", 3 * PAGE_ENTRIES)


@dataclass
class Ground:
    """A journal of two topics, the state that follows it, and memory over both."""

    journal: Journal
    database: StateDatabase
    catalog: Catalog
    index: SectionIndex
    counters: Counters

    def topic(self, name: str = "topic-1") -> Topic:
        return self.catalog.topic(name)

    async def write(self, *sections: Section, committed: bool = True) -> None:
        self.catalog.apply(self.journal.write(sections=sections))
        if committed:
            await self.commit()

    async def commit(self) -> None:
        """SQLite catches up, and memory hears of it."""
        position = await self.database.position()
        if behind := self.journal.entries[position.seq :]:
            await self.database.apply(behind)
        self.catalog.forget_paged(self.database.paged_seq)

    async def fill(self, count: int) -> None:
        """Entries with a section of each topic; the one of topic-2 has three records."""
        for n in range(count):
            one, two = self.topic().log_end_offset, self.topic("topic-2").log_end_offset
            await self.write(
                section(1, one), section(2, two, count=3, start=8), committed=n % 4 == 3
            )
        await self.commit()

    async def ref(self, topic: Topic, offset: int) -> SectionRef:
        owner, rows, _ = await self.index.rows_of(topic, offset)
        return self.catalog.section_ref(owner, rows, rows.row_of(offset))

    def expected(self, topic_id: int, offset: int) -> tuple[int, int, int]:
        """Seq, first and last offset of the section that holds it, by looking at all entries."""
        return next(
            (entry.header.seq, one.base_offset, one.last_offset)
            for entry in self.journal.entries
            for one in entry.contents.sections
            if one.topic_id == topic_id and one.base_offset <= offset <= one.last_offset
        )

    async def check_all(self, chance: random.Random) -> None:
        for topic in self.catalog.topics():
            offsets = list(range(topic.log_end_offset))
            for offset in chance.sample(offsets, len(offsets)):
                ref = await self.ref(topic, offset)
                found = (ref.entry.seq, ref.base_offset, ref.last_offset)
                assert found == self.expected(topic.topic_id, offset)
                assert (ref.entry.epoch, ref.entry.writer_id) == (1, b"W" * 16)


async def opened(path: Path, journal: Journal) -> Ground:
    database = await StateDatabase.open(path)
    assert database.set_aside == ""
    catalog = Catalog(await database.load(), lambda: 0.0)
    counters = Counters()
    return Ground(journal, database, catalog, SectionIndex(database, counters), counters)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    path = tmp_path / "state.sqlite"
    journal = Journal()
    database = await StateDatabase.open(path)
    await database.apply([journal.write(topic_created(1), topic_created(2))])
    await database.close()
    ground = await opened(path, journal)
    yield ground
    await ground.database.close()
    checks.prepare(path)


async def test_every_offset_is_found_in_memory_or_in_a_page(ground: Ground) -> None:
    await ground.fill(10 * PAGE_ENTRIES + 3)
    await ground.check_all(random.Random(1))
    assert ground.counters.index_lookups > 0


async def test_memory_keeps_the_newest_rows_and_few_pages(ground: Ground) -> None:
    for n in range(12):
        await ground.fill(PAGE_ENTRIES)
        assert len(ground.topic().index) >= min(n, 1) * PAGE_ENTRIES, "the newest are at hand"
        await ground.check_all(random.Random(2))
        for topic in ground.catalog.topics():
            assert len(topic.index) <= 2 * PAGE_ENTRIES
        kept = ground.index._kept
        assert sum(map(len, kept.values())) == ground.index._kept_rows <= 3 * PAGE_ENTRIES
        begins = {(topic_id, at) for topic_id, of in ground.index._begins.items() for at in of}
        assert begins == set(kept)


async def test_what_sqlite_has_not_committed_stays_in_memory(ground: Ground) -> None:
    await ground.fill(3 * PAGE_ENTRIES)
    behind = 5 * PAGE_ENTRIES
    for _ in range(behind):
        await ground.write(section(1, ground.topic().log_end_offset), committed=False)
        ground.catalog.forget_paged(ground.database.paged_seq)
    assert len(ground.topic().index) >= behind
    await ground.check_all(random.Random(3))
    await ground.commit()
    await ground.check_all(random.Random(4))


async def test_a_start_loads_only_what_is_in_no_page(ground: Ground, tmp_path: Path) -> None:
    await ground.fill(10 * PAGE_ENTRIES + 3)
    await ground.database.close()
    again = await opened(tmp_path / "state.sqlite", ground.journal)
    loaded = await again.database.load()
    assert len(loaded.entries) < PAGE_ENTRIES
    for before, after in zip(ground.catalog.topics(), again.catalog.topics(), strict=True):
        assert after.log_end_offset == before.log_end_offset
        assert after.index.total_bytes == before.index.total_bytes
        assert len(after.index) < PAGE_ENTRIES
    await again.check_all(random.Random(5))
    await again.fill(PAGE_ENTRIES)
    await again.check_all(random.Random(6))
    await again.database.close()


async def test_a_busy_stretch_ends_early(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEX_PAGE_SECTIONS", 4)
    await ground.fill(6)
    assert ground.database.paged_seq == ground.journal.position.seq
    await ground.check_all(random.Random(7))


async def test_a_time_is_found_in_pages_and_in_memory(ground: Ground) -> None:
    chance = random.Random(8)
    times_us = [START_US + chance.randrange(1_000) for _ in range(6 * PAGE_ENTRIES + 2)]
    for offset, time_us in enumerate(times_us):
        one = msgspec.structs.replace(section(1, offset), largest_timestamp_us=time_us)
        await ground.write(one)
    topic = ground.topic()
    for wanted_us in (0, *times_us, *(time_us + 1 for time_us in times_us)):
        found = await ground.index.offset_of_time(topic, wanted_us)
        ends = topic.log_end_offset
        first = next((i for i, time_us in enumerate(times_us) if time_us >= wanted_us), ends)
        assert found == first
    assert await ground.index.offset_of_time(ground.topic("topic-2"), 0) == 0


async def test_bytes_before_an_offset_are_counted_from_the_log_start(ground: Ground) -> None:
    await ground.fill(4 * PAGE_ENTRIES)
    topic = ground.topic("topic-2")
    for offset in range(0, topic.log_end_offset, 5):
        _, rows, _ = await ground.index.rows_of(topic, offset)
        whole, part = divmod(offset, 3)
        assert rows.bytes_before_offset(offset) == 8 * whole + 8 * part // 3


async def test_the_pages_of_a_deleted_topic_go_with_it(ground: Ground, tmp_path: Path) -> None:
    await ground.fill(3 * PAGE_ENTRIES)
    topic = ground.topic()
    ground.catalog.apply(ground.journal.write(TopicDeleted(topic_id=1)))
    await ground.commit()
    with pytest.raises(TopicNotFoundError):
        await ground.index.rows_of(topic, 0)
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as connection:
        left = connection.execute("SELECT DISTINCT topic_id FROM index_pages").fetchall()
    assert left == [(2,)]
    for _ in range(PAGE_ENTRIES):
        await ground.write(section(2, ground.topic("topic-2").log_end_offset))
    await ground.check_all(random.Random(9))


async def test_a_page_that_is_gone_is_damage_and_no_end_of_the_log(
    ground: Ground, tmp_path: Path
) -> None:
    await ground.fill(4 * PAGE_ENTRIES)
    pages = "index_pages WHERE topic_id = 1"
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as connection:
        rows = connection.execute(f"SELECT * FROM {pages}").fetchall()
        for found, why in (([], "a hole"), ([(*rows[0][:-1], b"cut")], "index rows"), (rows, None)):
            connection.execute(f"DELETE FROM {pages}")
            connection.executemany("INSERT INTO index_pages VALUES (?, ?, ?, ?, ?, ?)", found)
            connection.commit()
            if why is not None:
                with pytest.raises(CorruptObjectError, match=why):
                    await ground.index.rows_of(ground.topic(), 0)
    await ground.check_all(random.Random(10))

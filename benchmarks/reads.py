"""What a read costs, part by part: an answer from memory, JSON, finding an offset in a long log,
and following a journal of many topics. No network and no bucket: `seb bench` measures those.

    python benchmarks/reads.py
"""

from __future__ import annotations

import asyncio
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.record_encoding import ValueShape, json_parts, ndjson_parts
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import LoadedState
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import IndexRows
from seb_appliance.broker.values import ApiKeyView, From, NewRecords, ReadRequest, ReadResult
from seb_appliance.clock import SystemClock
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.state import tables
from seb_appliance.state.database import StateDatabase
from tests.support.fakes import FakeJournal, FakeKeyIndex, FakeSource, FakeState
from tests.unit.state.journal import Journal, section, topic_created

ADMIN = ApiKeyView("admin", "admin", (Grant(operation="admin"),), 0)
RECORDS, VALUE_BYTES = 1_024, 256
ENTRIES_OF_RECORDS = 10
RECORDS_IN_SECTION = 100
_FOLLOWED = 1_200  # entries: more than one page of the index takes


def seconds(act: Callable[[], object], times: int) -> float:
    """Processor seconds of one call: the best of five rounds."""
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(times):
            act()
        rounds.append((time.process_time() - began) / times)
    return min(rounds)


async def from_memory() -> None:
    """Records of sections that lie decoded in memory, as stored bytes and as JSON."""
    clock, source = SystemClock(), FakeSource()
    source.in_memory = True
    with ThreadPoolExecutor(1) as executor:
        broker = Broker(
            LoadedState(ORIGIN),
            FakeJournal(clock),
            source,
            FakeState(),
            BrokerSettings(linger_ms=0),
            FakeKeyIndex(),
            clock=clock,
            executor=executor,
            random_bytes=lambda n: b"7" * n,
        )
        broker.start()
        value = msgspec.json.encode({"text": "x" * (VALUE_BYTES - 11)})
        for _ in range(ENTRIES_OF_RECORDS):
            records = NewRecords([value] * RECORDS)
            await broker.appends.append(ADMIN, "t", records, broker.pending.reserve(OPERATOR, 1))
        request = ReadRequest(From(offset=RECORDS), max_records=RECORDS)
        await broker.read("t", request)
        taken = seconds(lambda: broker.read_nowait("t", request), 5_000)
        print(f"{RECORDS:,} records of {VALUE_BYTES} B, from memory")
        _rate("stored batches", RECORDS, taken)
        result = await broker.read("t", request)
        await broker.stop()
    for shape in ("text", "json", "base64"):
        _encode(result, shape)


def _encode(result: ReadResult, shape: ValueShape) -> None:
    for name, parts in (("NDJSON", ndjson_parts), ("JSON", json_parts)):
        taken = seconds(lambda parts=parts: list(parts(result, shape)), 50)
        _rate(f"{name}, values={shape}", RECORDS, taken)


def _rate(what: str, records: int, taken_s: float) -> None:
    print(f"  {what:24} {records / taken_s:14,.0f} records/s {taken_s * 1e6:10,.1f} us")


def synthesise(path: Path, records: int) -> None:
    """Give topic 1 of the state at `path` an index of so many records, in pages of full length."""
    rows = []
    end = total_bytes = seq = 0
    while end < records:
        page = IndexRows(end=end, newest_us=end, total_bytes=total_bytes)
        for _ in range(limits.INDEX_PAGE_ENTRIES):
            seq += 1
            one = section(1, page.end, count=RECORDS_IN_SECTION)
            page.add(seq, 128, seq, msgspec.structs.replace(one, largest_timestamp_us=page.end))
        rows.append((1, page.begin, page.end, page.newest, page.total_bytes, page.pack()))
        end, total_bytes = page.end, page.total_bytes
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO index_pages VALUES (?, ?, ?, ?, ?, ?)", rows)
        checksum = tables.rows_checksum(connection)
        connection.execute("UPDATE journal_state SET checksum = ?", (checksum,))


async def long_logs(folder: Path) -> None:
    print("finding a random offset in the index")
    for records in (1_000_000, 10_000_000, 100_000_000):
        path = folder / f"{records}.sqlite"
        database = await StateDatabase.open(path)
        await database.apply([Journal().write(topic_created(1, "t"))])
        await database.close()
        synthesise(path, records)
        before_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        began = time.perf_counter()
        database = await StateDatabase.open(path)
        opened_s = time.perf_counter() - began
        catalog = Catalog(await database.load(), time.monotonic)
        loaded_s = time.perf_counter() - began - opened_s
        topic = catalog.topic("t")
        chance = random.Random(7)
        offsets = [chance.randrange(topic.log_end_offset) for _ in range(2_000)]
        taken = []
        for offset in offsets:
            index = SectionIndex(database, Counters())  # nothing was looked up before
            began = time.perf_counter()
            rows = await index.rows_of(topic, offset)
            catalog_row = rows.row_of(offset)
            taken.append(time.perf_counter() - began)
            assert rows.bases[catalog_row] <= offset < rows.end_of(catalog_row)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before_bytes
        taken.sort()
        print(
            f"  {topic.log_end_offset:13,} records  p50 {taken[1_000] * 1e6:6,.0f} us"
            f"  p99 {taken[1_980] * 1e6:6,.0f} us  file checked in {opened_s:.2f} s,"
            f" loaded in {loaded_s * 1e3:.1f} ms, memory +{grown / 1e6:.0f} MB"
        )
        await database.close()


async def many_topics(folder: Path) -> None:
    print("following a journal whose entries have a section of each topic, but 100 at most")
    for topics in (10, 100, 1_000, 10_000):
        at_once = min(topics, 100)
        journal = Journal()
        journal.write(*(topic_created(1 + i) for i in range(topics)))
        ends = [0] * topics
        chance = random.Random(7)
        for _ in range(_FOLLOWED):
            sections = []
            for i in sorted(chance.sample(range(topics), at_once)):
                sections.append(section(1 + i, ends[i], start=8 * len(sections)))
                ends[i] += 1
            journal.write(sections=sections)
        catalog = Catalog(LoadedState(ORIGIN), time.monotonic)
        began = time.process_time()
        for entry in journal.entries:
            catalog.apply(entry)
        applied_s = time.process_time() - began
        database = await StateDatabase.open(folder / f"topics-{topics}.sqlite")
        began = time.process_time()
        for first in range(0, len(journal.entries), 8):
            await database.apply(journal.entries[first : first + 8])
        followed_s = time.process_time() - began
        await database.close()
        print(
            f"  {topics:6,} topics  in memory {applied_s / _FOLLOWED * 1e6:6,.0f} us an entry,"
            f"  in SQLite {followed_s / _FOLLOWED * 1e6:6,.0f} us"
        )


async def main() -> None:
    await from_memory()
    with tempfile.TemporaryDirectory() as folder:
        await long_logs(Path(folder))
        await many_topics(Path(folder))


if __name__ == "__main__":
    asyncio.run(main())

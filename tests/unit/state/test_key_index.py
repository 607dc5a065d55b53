"""keyindex.sqlite alone: what it answers equals a dictionary, and damage is found out."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.record_keys.indexing import IndexedTopic, IndexRange
from seb_appliance.broker.values import BatchSlice
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.topic_settings import KeyIndexMode
from seb_appliance.state.record_keys.index import SqliteKeyIndex

BUCKET = b"B" * 16
ODD_KEYS = [b"", b"\0", b"\0\0", b"a\0b", b"/", b"\xff", b"\xff\xff", b"\xfe\xff", b"k" * 65_536]

Record = tuple[bytes | None, bytes | None]  # record key, value (None: a tombstone)


def records_of(topic_id: int, offset: int, records: list[Record]) -> IndexRange:
    columns = Columns(
        int64s(range(offset, offset + len(records))),
        BinaryColumn.of([value for _, value in records]),
        BinaryColumn.of([key for key, _ in records]),
    )
    stored = batch.encode(columns, base_offset=offset, created_us=1)
    whole = BatchSlice(batch.decode(stored), 0, len(records), memoryview(stored))
    return IndexRange(topic_id, offset, offset + len(records), [whole])


@contextlib.asynccontextmanager
async def opened(
    folder: Path, bucket_id: bytes = BUCKET, *, trusted: bool = True
) -> AsyncIterator[SqliteKeyIndex]:
    index = await SqliteKeyIndex.open(folder / "keyindex.sqlite", bucket_id, trusted=trusted)
    try:
        yield index
    finally:
        await index.close()


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[SqliteKeyIndex]:
    async with opened(tmp_path) as made:
        yield made


class Model:
    """The log of one topic, and the index that follows it."""

    def __init__(self, index: SqliteKeyIndex, mode: KeyIndexMode, topic_id: int = 7) -> None:
        self.index = index
        self.mode = mode
        self.topic_id = topic_id
        self.log: list[Record] = []
        self.start = 0

    async def begin(self) -> Model:
        await self.index.begin(self.topic_id, IndexedTopic(self.mode, 0))
        return self

    async def add(self, *records: Record, kept_below: int | None = None) -> None:
        kept = {} if kept_below is None else {self.topic_id: kept_below}
        await self.index.add([records_of(self.topic_id, len(self.log), list(records))], kept)
        self.log += records

    def newest(self, as_of: int | None = None) -> dict[bytes, int]:
        """Offsets by record key, tombstones left out."""
        found: dict[bytes, int] = {}
        for offset, (key, value) in enumerate(self.log[:as_of]):
            if key is not None:
                found.pop(key, None)
                if value is not None:
                    found[key] = offset
        return {key: offset for key, offset in found.items() if offset >= self.start}

    async def check(self) -> None:
        newest = self.newest()
        found = await self.index.page(self.topic_id, b"", None, 10_000, self.start)
        assert [(row.key, row.offset) for row in found.rows] == sorted(newest.items())
        assert found.indexed_offset == len(self.log)
        for key in {key for key, _ in self.log if key is not None}:
            rows = (await self.index.latest(self.topic_id, key, self.start)).rows
            assert [row.offset for row in rows] == [newest[key] for _ in {key} & newest.keys()]
            if self.mode == "history":
                listed = [o for o, (k, _) in enumerate(self.log) if k == key and o >= self.start]
                assert await self.history(key) == listed[::-1]
        live = await self.index.live(self.topic_id, len(self.log), self.start, 10_000)
        assert list(live.offsets) == sorted(newest.values())

    async def history(self, key: bytes, before: int | None = None, most: int = 10_000) -> list[int]:
        found = await self.index.history(self.topic_id, key, before, most, self.start)
        return list(found.offsets)


def some(chance: random.Random, keys: list[bytes], most: int = 40) -> list[Record]:
    return [
        (
            chance.choice([None, *keys]) if chance.random() < 0.1 else chance.choice(keys),
            None if chance.random() < 0.2 else b"v",
        )
        for _ in range(chance.randint(1, most))
    ]


@pytest.mark.parametrize("mode", ["latest", "history"])
@pytest.mark.parametrize("seed", range(5))
async def test_it_answers_what_a_dictionary_would(index, mode, seed):
    chance = random.Random(seed)
    keys = [*ODD_KEYS, *(b"k%d" % n for n in range(10))]
    model = await Model(index, mode).begin()
    other = await Model(index, "history", topic_id=8).begin()
    for _ in range(12):
        await model.add(*some(chance, keys))
        await other.add(*some(chance, keys))
        if chance.random() < 0.3:
            model.start = chance.randint(model.start, len(model.log))
            await index.trim(model.topic_id, model.start)
        await model.check()
    await other.check()
    await index.drop(model.topic_id)
    await other.check()
    model.log = []
    await model.check()


@pytest.mark.parametrize("mode", ["latest", "history"])
@pytest.mark.parametrize("seed", range(5))
async def test_a_view_stays_as_it_was_while_records_arrive(index, mode, seed):
    chance = random.Random(seed)
    keys = [b"k%d" % n for n in range(15)]
    model = await Model(index, mode).begin()
    await model.add(*some(chance, keys))
    views: list[int] = []
    for _ in range(6):
        views.append(len(model.log))
        await model.add(*some(chance, keys), kept_below=max(views))
        for as_of in views:
            live = await index.live(model.topic_id, as_of, 0, 1_000)
            assert list(live.offsets) == sorted(model.newest(as_of).values())
    await index.forget_kept(model.topic_id)
    await model.check()


@pytest.mark.parametrize("prefix", [b"", b"a", b"a\0", b"\xff", b"\xff\xff", b"k" * 65_536, b"zz"])
async def test_a_prefix_of_any_bytes_is_paged_through(index, prefix):
    model = await Model(index, "latest").begin()
    await model.add(*((key, b"v") for key in [*ODD_KEYS, b"a", b"ab", b"a\0"]))
    wanted = sorted(key for key in model.newest() if key.startswith(prefix))
    found: list[bytes] = []
    after = None
    while page := (await index.page(model.topic_id, prefix, after, 2, 0)).rows:
        found += (row.key for row in page)
        after = found[-1]
    assert found == wanted


async def test_a_page_of_history_begins_below_any_offset(index, monkeypatch):
    monkeypatch.setattr(limits, "KEY_HISTORY_LOOKED_AT", 3)
    model = await Model(index, "history").begin()
    await model.add(*((b"ab"[n % 3 == 0 :][:1], b"v") for n in range(60)))
    for key in (b"a", b"b"):
        for before in range(61):
            below = [o for o, (k, _) in enumerate(model.log) if k == key and o < before]
            assert await model.history(key, before, 4) == below[::-1][:4]


@pytest.mark.parametrize("mode", ["latest", "history"])
async def test_trimmed_rows_are_deleted_some_at_a_time(index, mode, monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "KEY_INDEX_TRIM_ROWS", 7)
    model = await Model(index, mode).begin()
    await model.add(*((b"k%d" % n, b"v") for n in range(50)))
    await model.add((b"k3", b"w"), (b"k4", b"w"), kept_below=50)
    transactions: list[str] = []
    connection = index._connection
    connection.set_trace_callback(
        lambda sql: transactions.append(sql) if sql.startswith("BEGIN") else None
    )
    model.start = 40
    await index.trim(model.topic_id, model.start)
    assert len(transactions) > 5
    for table in ("latest", "history", "kept"):
        rows = connection.execute(f"SELECT min(offset) FROM {table}").fetchone()
        assert rows[0] is None or rows[0] >= 40, table
    await model.check()


async def test_there_is_no_history_before_it_is_indexed(index):
    model = await Model(index, "latest").begin()
    await model.add((b"k", b"v"), (b"k", b"w"))
    found = await index.history(model.topic_id, b"k", None, 10, 0)
    assert (list(found.offsets), found.indexed_offset) == ([], 0)


async def test_it_is_taken_up_where_it_was(tmp_path):
    async with opened(tmp_path) as index:
        model = await Model(index, "history").begin()
        await model.add((b"k", b"v"))
    async with opened(tmp_path) as index:
        assert await index.load() == {7: IndexedTopic("history", 1)}
        model.index = index
        await model.add((b"k", b"w"))
        await model.check()


@pytest.mark.parametrize("what", ["bucket", "untrusted", "version", "text", "empty"])
async def test_a_file_that_is_not_ours_is_begun_anew(tmp_path, what):
    async with opened(tmp_path) as index:
        await (await Model(index, "latest").begin()).add((b"k", b"v"))
    path = tmp_path / "keyindex.sqlite"
    if what == "version":
        change(path, "PRAGMA user_version = 99")
    elif what in ("text", "empty"):
        path.write_bytes(b"no database" * 500 if what == "text" else b"")
    bucket = b"C" * 16 if what == "bucket" else BUCKET
    async with opened(tmp_path, bucket, trusted=what != "untrusted") as index:
        assert await index.load() == {}
    assert path.stat().st_mode & 0o777 == 0o600


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE latest SET offset = offset + 1 WHERE key = x'6b'",
        "UPDATE latest SET key = x'6c' WHERE key = x'6b'",
        "UPDATE latest SET tombstone = 1 WHERE key = x'6b'",
        "UPDATE history SET previous = 0 WHERE offset = 2",
        "UPDATE topics SET indexed_offset = 9",
    ],
)
async def test_a_row_that_was_changed_is_never_answered(tmp_path, damage):
    async with opened(tmp_path) as index:
        model = await Model(index, "history").begin()
        await model.add((b"x", b"v"), (b"k", b"v"), (b"k", b"w"))
    change(tmp_path / "keyindex.sqlite", damage)
    async with opened(tmp_path) as index:
        with pytest.raises(CorruptObjectError):
            await ask_everything(index)
        await index.clear()
        assert await index.load() == {}
        model = await Model(index, "history").begin()
        await model.add((b"k", b"v"))
        await model.check()


async def ask_everything(index: SqliteKeyIndex) -> None:
    await index.load()
    await index.page(7, b"", None, 10, 0)
    await index.history(7, b"k", None, 10, 0)

"""Sections from memory, the cache on disk, the bucket: checked wherever they come from."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from crc32c import crc32c

from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import EntryRef, SectionRef
from seb_appliance.broker.read.sections import SectionReader
from seb_appliance.clock import SystemClock
from seb_appliance.errors import CorruptObjectError, StoreDeniedError, StoreUncertainError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats import batch
from seb_appliance.formats import entry as entry_format
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.contents import Contents, Section
from seb_appliance.formats.entry import ORIGIN, EncodedEntry
from seb_appliance.storage.objects.disk_cache import DiskCache, entry_name
from seb_appliance.storage.objects.section_source import BucketSections
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import ObjectRange

DATA = bytes(range(64))


class NoPause(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class FlakyStore(MemoryStore):
    """Answers range GETs by a script first: an error to raise, or bytes to hand out."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Exception | bytes] = []
        self.asked = 0

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        self.asked += 1
        if self.script:
            step = self.script.pop(0)
            if isinstance(step, Exception):
                raise step
            return ObjectRange(step, len(step))
        return await super().get_range(key, start, length)


def one_entry() -> EncodedEntry:
    section = Section(1, 0, 0, 1, 0, len(DATA), crc32c(DATA), 0)
    return entry_format.encode(
        Contents([], [section]),
        [DATA],
        after=ORIGIN,
        epoch=1,
        writer_id=b"W" * 16,
        entry_id=b"E" * 16,
        bucket_id=b"B" * 16,
        created_us=1,
    )


def ref_of(encoded: EncodedEntry, *, crc: int | None = None) -> SectionRef:
    header = encoded.entry.header
    return SectionRef(
        EntryRef(1, 1, b"W" * 16),
        1,
        0,
        0,
        header.sections_at,
        len(DATA),
        crc32c(DATA) if crc is None else crc,
    )


@pytest.fixture
async def store() -> FlakyStore:
    store = FlakyStore()
    await store.put("entry-1", one_entry().body)
    return store


def sections(store: FlakyStore, folder: Path | None = None) -> BucketSections:
    cache = DiskCache(folder, 1 << 20, NO_FAILPOINTS) if folder else None
    return BucketSections(store, lambda ref: f"entry-{ref.seq}", cache, NoPause())


async def test_an_entry_of_ours_is_at_hand_without_asking_the_bucket(store: FlakyStore) -> None:
    source = sections(store)
    source.keep(one_entry())
    assert await source.read(ref_of(one_entry())) == DATA
    assert store.asked == 0
    await source.close()


async def test_a_section_is_read_by_one_range_get(store: FlakyStore) -> None:
    source = sections(store)
    assert await source.read(ref_of(one_entry())) == DATA
    assert store.asked == 1
    await source.close()


async def test_what_was_fetched_once_comes_from_disk_also_after_a_restart(
    store: FlakyStore, tmp_path: Path
) -> None:
    first = sections(store, tmp_path)
    await first.read(ref_of(one_entry()))
    await first.close()
    second = sections(store, tmp_path)
    assert await second.read(ref_of(one_entry())) == DATA
    assert store.asked == 1
    await second.close()


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9] + b"x" + b[-8:], lambda b: b[:-9], lambda b: b""]
)
async def test_a_damaged_cache_file_is_dropped_and_fetched_again(
    store: FlakyStore, tmp_path: Path, damage
) -> None:
    first = sections(store, tmp_path)
    first.keep(one_entry())
    await first.close()
    (cached,) = tmp_path.iterdir()
    cached.write_bytes(damage(cached.read_bytes()))
    second = sections(store, tmp_path)
    assert await second.read(ref_of(one_entry())) == DATA
    assert store.asked == 1
    await second.close()


async def test_a_bit_flipped_on_the_way_is_fetched_again(store: FlakyStore) -> None:
    source = sections(store)
    store.script = [DATA[:-1] + b"x", StoreUncertainError("reset")]
    assert await source.read(ref_of(one_entry())) == DATA
    await source.close()


async def test_a_section_damaged_in_the_bucket_is_never_served(store: FlakyStore) -> None:
    source = sections(store)
    with pytest.raises(CorruptObjectError) as refused:
        await source.read(ref_of(one_entry(), crc=7))
    assert refused.value.data["offset"] == 0
    assert refused.value.data["object_key"] == "entry-1"
    await source.close()


async def test_a_missing_object_is_damage_and_a_denied_one_is_not(store: FlakyStore) -> None:
    source = sections(store)
    store.script = [StoreDeniedError("403")]
    with pytest.raises(StoreDeniedError):
        await source.read(ref_of(one_entry()))
    assert source.damaged == 0
    await store.delete("entry-1")
    with pytest.raises(CorruptObjectError):
        await source.read(ref_of(one_entry()))
    assert source.damaged == 1
    await source.close()


@pytest.mark.parametrize("crc", [None, 7])
async def test_the_log_names_an_object_that_cannot_be_read_once(
    store: FlakyStore, caplog: pytest.LogCaptureFixture, crc: int | None
) -> None:
    source = sections(store)
    if crc is None:
        await store.delete("entry-1")
    for _ in range(3):
        with pytest.raises(CorruptObjectError):
            await source.read(ref_of(one_entry(), crc=crc))
    (line,) = caplog.messages
    assert line.startswith("entry-1: Offsets 0 to 0 of topic id 1 cannot be read")
    await source.close()


def test_the_oldest_files_go_when_the_cache_is_full(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 250, NO_FAILPOINTS)
    for seq in range(1, 4):
        cache.put(entry_name(seq), b"x" * 100)
    assert cache.used_bytes == 200
    assert cache.read(1, 0, 10) is None
    assert cache.read(3, 90, 10) == b"x" * 10
    assert sorted(path.name[-8:] for path in tmp_path.iterdir()) == ["02.entry", "03.entry"]


def test_half_written_files_of_a_crash_are_removed(tmp_path: Path) -> None:
    (tmp_path / f"{1:020d}.entry.new").write_bytes(b"half")
    cache = DiskCache(tmp_path, 250, NO_FAILPOINTS)
    assert list(tmp_path.iterdir()) == []
    assert cache.used_bytes == 0


def test_a_disk_that_refuses_costs_the_cache_and_nothing_else(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 250, NO_FAILPOINTS)
    (tmp_path / "cache" / f"{1:020d}.entry.new").mkdir()  # a write there fails, as on a full disk
    cache.put(entry_name(1), b"x")
    assert cache.failures == 1
    assert cache.read(1, 0, 1) is None


async def test_many_readers_of_one_cold_section_cost_one_get(
    store: FlakyStore, tmp_path: Path
) -> None:
    columns = Columns(int64s([1, 1]), BinaryColumn.of([b"a", b"b"]))
    data = batch.encode(columns, base_offset=0, created_us=1)
    await store.put("entry-1", data)
    ref = SectionRef(EntryRef(1, 1, b"W" * 16), 1, 0, 1, 0, len(data), crc32c(data))
    source = sections(store, tmp_path)
    counters = Counters()
    with ThreadPoolExecutor(1) as executor:
        reader = SectionReader(source, executor, counters)
        reader.fetch_ahead(ref)
        found = await asyncio.gather(*(reader.read(ref, 0, 99) for _ in range(100)))
    assert store.asked == 1
    assert all(section[0].stored == data for section in found)
    await source.close()

"""Entries out of the cache on disk: what is asked for again comes from the bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from seb_appliance.broker.ports import EntryRef
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.storage import layout
from seb_appliance.storage.objects.disk_cache import DiskCache, EntriesOnDisk, entry_name
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.memory import MemoryStore

REF = EntryRef(7, 1, b"W" * 16)


@pytest.fixture
def bucket() -> CountedStore:
    return CountedStore(MemoryStore())


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_an_entry_that_lies_on_the_disk_costs_no_get(
    bucket: CountedStore, tmp_path: Path, mode: layout.Mode
) -> None:
    key = layout.object_key(mode, REF)
    await bucket.put(key, b"in the bucket")
    DiskCache(tmp_path, 1_000, NO_FAILPOINTS).put(entry_name(7), b"on the disk")
    reads = EntriesOnDisk(bucket, tmp_path)
    assert await reads.get(key) == b"on the disk"
    assert bucket.counts.requests("GET") == 0
    assert await reads.get(key) == b"in the bucket"


async def test_what_does_not_lie_there_comes_from_the_bucket(
    bucket: CountedStore, tmp_path: Path
) -> None:
    keys = [layout.object_key("A", REF), layout.packed_key(7, 7, 1, b"n" * 8)]
    reads = EntriesOnDisk(bucket, tmp_path / "no such folder")
    for key in keys:
        await bucket.put(key, key.encode())
        assert await reads.get(key) == key.encode()


def test_the_cache_writes_into_no_file_of_somebody_else(tmp_path: Path) -> None:
    cache, theirs = DiskCache(tmp_path / "cache", 1_000, NO_FAILPOINTS), tmp_path / "theirs"
    theirs.write_text("precious")
    (tmp_path / "cache" / f"{entry_name(7)}.new").symlink_to(theirs)
    cache.put(entry_name(7), b"an entry")
    assert (theirs.read_text(), cache.failures) == ("precious", 1)
    cache.put(entry_name(7), b"an entry")
    assert cache.read(7, 0, 8) == b"an entry"

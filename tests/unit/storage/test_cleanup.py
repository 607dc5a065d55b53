"""What may be deleted: entries at or below the floor, of our chain, never an epoch entry."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seb_appliance.broker.ports import EntryRef
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.entry import Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Claim, Mode
from seb_appliance.storage.objects.cleanup import BucketCleaner
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliances import HurriedClock, check_nothing

ONE, TWO, GHOST = (bytes([n]) * 16 for n in (1, 2, 0))
# Writer one wrote entries 1 to 5, writer two those from 6 on.
WRITERS = [EntryRef(1, 1, ONE), EntryRef(6, 2, TWO)]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def make(store: MemoryStore, mode: Mode = "A") -> tuple[BucketCleaner, SnapshotStore]:
    retrying = RetryingStore(store, HurriedClock(), random.Random(1).random, give_up_after_s=5)
    snapshots = SnapshotStore(retrying, NO_FAILPOINTS)
    return BucketCleaner(retrying, snapshots, mode, NO_FAILPOINTS), snapshots


async def with_floor(snapshots: SnapshotStore, tmp_path: Path, floor: int) -> None:
    for seq in (floor, floor + 1, floor + 2):
        (tmp_path / "state").write_bytes(b"state %d" % seq)
        await snapshots.publish(tmp_path / "state", Position(seq=seq), check_nothing)


async def left(store: MemoryStore) -> list[int]:
    listed = await store.list_after(layout.JOURNAL)
    return [place[1] for info in listed if (place := layout.parse_entry(info.key))]


async def write_journal(store: MemoryStore) -> None:
    for seq in range(1, 11):
        await store.put(layout.create_only_key(seq), b"entry")


async def test_entries_go_up_to_the_floor_and_epoch_entries_stay(
    store: MemoryStore, tmp_path: Path
) -> None:
    await write_journal(store)
    cleaner, snapshots = make(store)
    await with_floor(snapshots, tmp_path, 8)
    assert await cleaner.delete_entries(10, WRITERS, 100) == 6
    assert await left(store) == [1, 6, 9, 10]
    assert await cleaner.delete_entries(10, WRITERS, 100) == 0


async def test_entries_that_are_not_tidied_stay(store: MemoryStore, tmp_path: Path) -> None:
    await write_journal(store)
    cleaner, snapshots = make(store)
    await with_floor(snapshots, tmp_path, 8)
    await cleaner.delete_entries(3, WRITERS, 100)
    assert await left(store) == [1, *range(4, 11)]


async def test_nothing_goes_while_there_are_fewer_than_three_snapshots(
    store: MemoryStore, tmp_path: Path
) -> None:
    await write_journal(store)
    cleaner, snapshots = make(store)
    (tmp_path / "state").write_bytes(b"state")
    await snapshots.publish(tmp_path / "state", Position(seq=9), check_nothing)
    assert await cleaner.delete_entries(10, WRITERS, 100) == 0
    assert len(await left(store)) == 10


async def test_so_many_go_at_once_the_oldest_first(store: MemoryStore, tmp_path: Path) -> None:
    await write_journal(store)
    cleaner, snapshots = make(store)
    await with_floor(snapshots, tmp_path, 10)
    assert await cleaner.delete_entries(10, WRITERS, 3) == 3
    assert await left(store) == [1, *range(5, 11)]


async def test_in_mode_b_only_entries_of_the_chain_go(store: MemoryStore, tmp_path: Path) -> None:
    """Entry 6 of writer one is cut off by the base of two; another wrote none that count."""
    chain = [(1, ONE, range(1, 7)), (2, TWO, range(6, 11)), (2, GHOST, range(3, 5))]
    for n, writer_id, seqs in chain:
        for seq in seqs:
            await store.put(layout.claimed_key(Claim(n, writer_id), seq), b"entry")
    cleaner, snapshots = make(store, "B")
    await with_floor(snapshots, tmp_path, 8)
    assert await cleaner.delete_entries(10, WRITERS, 100) == 8
    keys = [info.key for info in await store.list_after(layout.JOURNAL)]
    kept = [(1, ONE, 6), (2, GHOST, 3), (2, GHOST, 4), (2, TWO, 9), (2, TWO, 10)]
    assert keys == [layout.claimed_key(Claim(n, of), seq) for n, of, seq in kept]


async def test_only_segments_and_packed_objects_are_deleted_as_objects(store: MemoryStore) -> None:
    cleaner, _ = make(store)
    ours = layout.segment_key(7, 0, 9, 3, b"\1" * 8), layout.packed_key(1, 4, 12, b"\2" * 8)
    for key in (*ours, "_seb/segments/notes.txt"):
        await store.put(key, b"x")
    assert sorted(await cleaner.list_objects()) == sorted(
        [(ours[0], 3), (ours[1], 12), ("_seb/segments/notes.txt", None)]
    )
    await cleaner.delete_objects(ours)
    assert [info.key for info in await store.list_after("")] == ["_seb/segments/notes.txt"]
    with pytest.raises(AssertionError):
        await cleaner.delete_objects([layout.create_only_key(1)])

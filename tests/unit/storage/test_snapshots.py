"""Snapshots in the bucket: named by content, three kept, the old ones only after a check."""

import pytest

from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.entry import Position
from seb_appliance.storage import layout
from seb_appliance.storage.layout import SnapshotName
from seb_appliance.storage.recovery.snapshots import SnapshotSchedule, floor_of
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliances import Appliance, HurriedClock
from tests.support.faulty_store import FaultyStore


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture
def snapshots(store, tmp_path):
    return Appliance(store, tmp_path).snapshots()


async def good(path):
    assert path.exists()


async def publish(snapshots, tmp_path, seq, check=good, content=b""):
    source = tmp_path / "state.copy"
    source.write_bytes(b"state %d" % seq * 1000 + content)
    return await snapshots.publish(source, Position(seq=seq), check)


async def test_what_is_published_can_be_fetched(snapshots, tmp_path):
    name = await publish(snapshots, tmp_path, 7)
    await snapshots.fetch(name, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"state 7" * 1000
    assert await snapshots.list() == [name]


async def test_three_are_kept(snapshots, store, tmp_path):
    for seq in (1, 2, 3, 4, 5):
        await publish(snapshots, tmp_path, seq)
    left = await store.list_after(layout.SNAPSHOTS, "", 9)
    assert snapshots.stored_bytes == sum(info.size for info in left)
    assert [name.seq for name in await snapshots.list()] == [3, 4, 5]
    assert await snapshots.floor() == 3


async def test_none_goes_while_the_new_one_is_not_checked(snapshots, tmp_path):
    for seq in (1, 2, 3):
        await publish(snapshots, tmp_path, seq)

    async def bad(path):
        raise CorruptObjectError("quick_check fails")

    with pytest.raises(CorruptObjectError):
        await publish(snapshots, tmp_path, 4, bad)
    # Damaged ones go again, however many: counted for the floor, they would let entries go.
    assert [name.seq for name in await snapshots.list()] == [1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.copy"]


async def test_none_goes_when_the_new_one_does_not_read_back(snapshots, store, tmp_path):
    for seq in (1, 2, 3):
        await publish(snapshots, tmp_path, seq)

    async def damaged(store, key, request):
        return (await request())[:-1]

    store.on("get", layout.SNAPSHOTS, damaged)
    with pytest.raises(CorruptObjectError, match="SHA-256"):
        await publish(snapshots, tmp_path, 4)
    assert [name.seq for name in await snapshots.list()] == [1, 2, 3]


async def test_a_damaged_snapshot_is_never_used(snapshots, store, tmp_path):
    name = await publish(snapshots, tmp_path, 1)
    body = bytearray(await store.get(name.key))
    body[10] ^= 1
    await store.put(name.key, bytes(body))
    with pytest.raises(CorruptObjectError, match=name.key):
        await snapshots.fetch(name, tmp_path / "fetched")


def test_the_floor_is_the_third_newest_seq():
    names = [SnapshotName(seq, "0" * 16) for seq in (10, 20, 30, 40)]
    assert floor_of(names) == 20
    assert floor_of(names[:2]) == 0


def test_two_snapshots_of_one_seq_count_once():
    names = [SnapshotName(30, "0" * 16), SnapshotName(30, "1" * 16), SnapshotName(20, "0" * 16)]
    assert floor_of(names) == 0


def schedule(**values):
    clock = HurriedClock()
    return clock, SnapshotSchedule(
        clock, **{"entry_s": 0.01, "snapshot_seq": 100, "seq": 100, **values}
    )


def test_a_snapshot_is_due_when_the_tail_takes_more_than_5_s():
    _, due = schedule()
    due.applied(600)
    assert not due.due()
    due.applied(601)
    assert due.due()


def test_at_most_one_snapshot_a_minute_even_if_it_fails():
    clock, due = schedule()
    due.applied(10_000)
    due.started()
    assert not due.due()
    clock.now_s += 59
    assert not due.due()
    clock.now_s += 1
    assert due.due()


def test_without_a_new_entry_none_is_due():
    clock, due = schedule()
    due.applied(10_000)
    due.started()
    due.published(10_000)
    clock.now_s += 10_000
    assert not due.due()
    assert not due.has_new_entries
    due.applied(10_001)
    assert due.has_new_entries

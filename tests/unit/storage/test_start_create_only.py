"""The start in mode A, sentence by sentence, with other writers in between."""

import pytest

from seb_appliance.errors import (
    BucketInUseError,
    CorruptObjectError,
    FencedError,
    ObjectMissingError,
    StoreUnusableError,
)
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import decode, encode
from seb_appliance.storage import layout
from seb_appliance.storage.journal import replay
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import list_all
from tests.support.appliances import Appliance, rebuilt
from tests.support.faulty_store import (
    CrashError,
    FaultyStore,
    after,
    before,
    crash,
    flipped_bit,
    late,
    lost_answer,
)

JOURNAL = layout.JOURNAL


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture
async def one(store, tmp_path):
    """An appliance with entries 1 (epoch), 2 to 10 (numbers 2 to 10)."""
    appliance = await Appliance(store, tmp_path / "one").start()
    for number in range(2, 11):
        await appliance.append(number)
    return appliance


def another(store, tmp_path, name="two"):
    return Appliance(store, tmp_path / name)


def key(seq):
    return layout.create_only_key(seq)


async def absent(store, key, request):
    raise ObjectMissingError("404", key=key)


async def append_and_snapshot(appliance, numbers):
    for number in numbers:
        await appliance.append(number)
        await appliance.snapshot()


async def delete_up_to_the_floor(store):
    """What the tidier will do: entries at or below the floor, epoch entries never."""
    names = [layout.parse_snapshot(x.key) for x in await list_all(store, layout.SNAPSHOTS)]
    floor = sorted(name.seq for name in names)[-3]
    for seq in range(1, floor + 1):
        if not decode(await store.get(key(seq))).header.is_epoch:
            await store.inner.delete(key(seq))
    return floor


async def test_a_start_begins_from_the_newest_snapshot(one, store, tmp_path):
    await append_and_snapshot(one, [11, 12])
    await one.append(13)
    two = await another(store, tmp_path).start(take_over=True)
    assert two.report.began_from.startswith(f"{layout.SNAPSHOTS}{12:020d}-")
    assert two.report.entries_replayed == 1
    assert two.replica.numbers == list(range(2, 14))


async def test_local_state_further_than_the_newest_snapshot_is_kept(one):
    await one.snapshot()
    await one.append(11)
    await one.start()
    assert one.report.began_from == "local"
    assert one.replica.restored == 0


async def test_a_snapshot_further_than_local_state_is_used(one, store, tmp_path):
    old = one.replica.state
    two = await another(store, tmp_path).start(take_over=True)
    await two.append(12)
    await two.snapshot()
    one.replica.state = old
    await one.start(take_over=True)
    assert one.report.began_seq == 12


async def test_a_damaged_snapshot_is_passed_over_for_the_one_before(one, store, tmp_path):
    await append_and_snapshot(one, [11, 12])
    newest = (await one.snapshots().list())[-1]
    body = bytearray(await store.get(newest.key))
    body[len(body) // 2] ^= 1
    await store.put(newest.key, bytes(body))
    two = await another(store, tmp_path).start(take_over=True)
    assert two.report.began_seq == 11
    assert newest.key in " ".join(two.report.warnings)
    assert two.replica.numbers == list(range(2, 13))


async def test_the_oldest_of_three_snapshots_is_enough_when_the_others_are_damaged(
    one, store, tmp_path
):
    await append_and_snapshot(one, [11, 12, 13])
    assert await delete_up_to_the_floor(store) == 11
    for name in (await one.snapshots().list())[1:]:
        await store.put(name.key, b"damaged")
    two = await another(store, tmp_path).start(take_over=True)
    assert two.report.began_seq == 11
    assert two.replica.numbers == list(range(2, 14))


async def test_local_state_below_the_floor_is_never_begun_from(one, store, tmp_path):
    old = one.replica.state.position, list(one.replica.numbers)
    await append_and_snapshot(one, [11, 12, 13])
    assert await delete_up_to_the_floor(store) == 11
    one.replica.state.position, one.replica.state.numbers = old[0], old[1]
    await one.start()
    assert one.report.began_seq == 13
    assert one.replica.cleared == 1
    assert one.replica.numbers == list(range(2, 14))


async def test_a_gap_is_damage_and_named(one, store, tmp_path):
    await store.inner.delete(key(5))
    with pytest.raises(StoreUnusableError, match=key(5) + " is missing") as damage:
        await another(store, tmp_path).start(take_over=True)
    assert damage.value.exit_code == 74
    assert not await list_all(store, key(5))  # nothing was put into the gap


async def test_a_stray_object_behind_the_log_is_named_with_what_to_do(one, store, tmp_path):
    """It may be an acknowledged entry whose predecessors were lost: nothing is passed over."""
    for stray in (key(500), f"{layout.JOURNAL}notes.txt"):
        await store.inner.put(stray, b"hello")
        with pytest.raises(StoreUnusableError, match=f"{stray} is there.*move it out") as damage:
            await another(store, tmp_path).start(take_over=True)
        assert "docs/OPERATIONS.md" in damage.value.detail
        await store.inner.delete(stray)
    await another(store, tmp_path).start(take_over=True)


async def test_a_damaged_entry_is_not_the_end_of_the_log(one, store, tmp_path):
    body = bytearray(await store.get(key(10)))
    body[120] ^= 1
    await store.put(key(10), bytes(body))
    with pytest.raises(StoreUnusableError, match=key(10) + " is damaged"):
        await another(store, tmp_path).start(take_over=True)
    assert store.count("create", key(11)) == 0


async def test_a_bit_flipped_on_the_way_is_read_again(one, store, tmp_path):
    store.on("get_range", key(5), flipped_bit, times=2)
    two = await another(store, tmp_path).start(take_over=True)
    assert two.replica.numbers == one.replica.numbers


async def test_an_entry_that_does_not_chain_is_damage(one, store, tmp_path):
    journal = one.journal
    stray = encode(
        Contents([], []),
        [],
        after=decode(await store.get(key(8))).header.position,
        epoch=journal.epoch,
        writer_id=journal.writer_id,
        entry_id=b"e" * 16,
        bucket_id=journal.bucket_id,
        created_us=1,
    )
    await store.put(key(9), stray.body)
    with pytest.raises(StoreUnusableError, match=key(10) + " does not continue"):
        await another(store, tmp_path).start(take_over=True)


async def test_an_entry_of_another_bucket_is_damage(one, store, tmp_path):
    journal = one.journal
    foreign = encode(
        Contents([], []),
        [],
        after=journal.position,
        epoch=journal.epoch,
        writer_id=journal.writer_id,
        entry_id=b"e" * 16,
        bucket_id=b"x" * 16,
        created_us=1,
    )
    await store.put(key(11), foreign.body)
    with pytest.raises(StoreUnusableError, match=key(11) + " is of another bucket"):
        await another(store, tmp_path).start(take_over=True)


async def test_an_entry_of_an_epoch_that_is_not_in_force_is_damage(one, store, tmp_path):
    journal = one.journal
    stray = encode(
        Contents([], []),
        [],
        after=journal.position,
        epoch=journal.epoch + 1,
        writer_id=journal.writer_id,
        entry_id=b"e" * 16,
        bucket_id=journal.bucket_id,
        created_us=1,
    )
    await store.put(key(11), stray.body)
    with pytest.raises(StoreUnusableError, match=key(11) + " is of epoch 2"):
        await another(store, tmp_path).start(take_over=True)


async def test_an_epoch_entry_without_a_larger_epoch_is_damage(one, store, tmp_path):
    stray = encode(
        Contents([], []),
        [],
        after=one.journal.position,
        epoch=one.journal.epoch,
        writer_id=b"o" * 16,
        entry_id=b"e" * 16,
        bucket_id=one.journal.bucket_id,
        created_us=1,
        is_epoch=True,
    )
    await store.put(key(11), stray.body)
    with pytest.raises(StoreUnusableError, match=key(11) + " begins epoch 1"):
        await another(store, tmp_path).start(take_over=True)


async def test_a_log_that_ends_below_a_snapshot_is_damage(one, store, tmp_path):
    """The snapshot itself is damaged, and the entries that it covers are lost."""
    await append_and_snapshot(one, [11, 12])
    newest = (await one.snapshots().list())[-1]
    await store.put(newest.key, b"damaged")
    await store.inner.delete(key(12))
    with pytest.raises(StoreUnusableError, match=newest.key + " is a snapshot, but"):
        await another(store, tmp_path).start(take_over=True)
    assert store.count("create", key(12)) == 1


async def test_a_key_that_is_taken_while_a_start_claims_and_never_found_is_damage(
    one, store, tmp_path
):
    store.on("create", key(11), before(lambda: one.append(11)))
    store.on("get_range", key(11), absent, times=100, skip=2)  # after it was compared
    with pytest.raises(StoreUnusableError, match="is listed, but GET answers 404"):
        await another(store, tmp_path).start(take_over=True)


async def test_an_entry_that_is_listed_and_never_found_is_damage(one, store, tmp_path):
    await one.append(11)
    store.on("get_range", key(11), absent, times=100)
    with pytest.raises(StoreUnusableError, match="is listed, but GET answers 404"):
        await another(store, tmp_path).start(take_over=True)


async def test_local_state_that_proves_damaged_in_a_replay_is_put_aside(one, tmp_path):
    two = another(one.store, tmp_path)
    await two.start(take_over=True)
    await two.append(11)
    sound = one.replica.apply

    async def damaged(entries):
        one.replica.apply = sound
        raise CorruptObjectError("database disk image is malformed")

    one.replica.apply = damaged
    await one.start(take_over=True)
    assert one.replica.cleared == 1
    assert one.replica.numbers == list(range(2, 12))


async def test_local_state_that_is_not_in_this_bucket_is_put_aside(one, store, tmp_path):
    """The bucket went on from an older copy: same id, other entries."""
    copy = FaultyStore(MemoryStore())
    for info in await list_all(store, ""):
        if info.key < key(10) or not info.key.startswith(JOURNAL):
            await copy.put(info.key, await store.get(info.key))
    two = await Appliance(copy, tmp_path / "two").start(take_over=True)
    await two.append(77)
    one.store = copy
    await one.start(take_over=True)
    assert one.replica.cleared == 1
    assert one.replica.numbers == [*range(2, 10), 77]


async def test_local_state_that_ends_with_another_entry_is_put_aside(one, store):
    """Nothing follows it that would not chain: the entry itself must be compared."""
    journal = one.journal
    other = encode(
        Contents([], []),
        [],
        after=decode(await store.get(key(9))).header.position,
        epoch=journal.epoch,
        writer_id=journal.writer_id,
        entry_id=b"e" * 16,
        bucket_id=journal.bucket_id,
        created_us=1,
    )
    await store.put(key(10), other.body)
    await one.start()
    assert one.replica.cleared == 1
    assert one.replica.numbers == list(range(2, 10))


async def test_local_state_ahead_of_the_bucket_is_an_error_and_not_repaired(one, store):
    for seq in (9, 10):
        await store.inner.delete(key(seq))
    with pytest.raises(StoreUnusableError, match="ahead of the bucket: it ends at entry 10"):
        await one.start()
    assert one.replica.cleared == 0
    assert store.count("create", key(9)) == 1  # its own, long ago


async def test_a_lost_answer_to_the_epoch_put_starts_one_epoch(store, tmp_path):
    store.on("create", JOURNAL, lost_answer)
    one = await another(store, tmp_path).start()
    assert one.journal.position.seq == 1


async def test_an_entry_stored_while_a_start_claims_is_replayed(one, store, tmp_path):
    two = another(store, tmp_path)
    store.on("create", key(11), before(lambda: one.append(11)), times=1)
    await two.start(take_over=True)
    assert two.replica.numbers[-1] == 11
    with pytest.raises(FencedError):
        await one.append(12)


async def test_a_replay_counts_all_pages_of_the_journal(one, store, tmp_path, monkeypatch):
    monkeypatch.setattr(replay, "LIST_PAGE", 4)
    listed = store.count("list_after", JOURNAL)
    await another(store, tmp_path).start(take_over=True)
    assert store.count("list_after", JOURNAL) - listed == 4  # 4, 4 and 2 of 10; none after the last


async def test_a_gap_in_what_comes_during_a_replay_is_damage(one, store, tmp_path):
    async def store_and_lose():
        for number in (11, 12, 13):
            await one.append(number)
        await store.inner.delete(key(12))

    store.on("list_after", JOURNAL, before(store_and_lose), skip=1)
    with pytest.raises(StoreUnusableError, match=key(12) + " is missing"):
        await another(store, tmp_path).start(take_over=True)
    assert not await list_all(store, key(12))


async def test_an_entry_that_is_damaged_while_a_start_claims_is_damage(one, store, tmp_path):
    """It was stored after the start had looked for the end of the log."""

    async def store_damaged():
        await one.append(11)
        body = bytearray(await store.get(key(11)))
        body[120] ^= 1
        await store.put(key(11), bytes(body))

    store.on("create", key(11), before(store_damaged))
    with pytest.raises(StoreUnusableError, match=key(11) + " is damaged"):
        await another(store, tmp_path).start(take_over=True)
    assert store.count("create", key(12)) == 0


async def test_a_start_that_lost_the_race_for_an_epoch_asks_again_for_take_over(store, tmp_path):
    """Two first starts: the later one must not fence the earlier without being told to."""
    two = another(store, tmp_path, "two")
    store.on("create", key(1), before(lambda: two.start()))
    with pytest.raises(BucketInUseError):
        await another(store, tmp_path, "one").start()
    await two.append(1)


async def test_a_slow_starter_below_the_floor_begins_again(one, store, tmp_path):
    """It replays to 10; meanwhile the log goes on, is snapshotted and deleted; its epoch entry then
    lands on a freed key, far below the living log."""
    two = another(store, tmp_path)

    async def live_on():
        await append_and_snapshot(one, range(11, 16))
        assert await delete_up_to_the_floor(store) == 13

    store.on("create", key(11), before(live_on))
    await two.start(take_over=True)
    assert store.count("create", key(11)) == 2  # its own went to 11 as well, and was given up
    assert two.journal.position.seq == 16
    assert two.replica.numbers == list(range(2, 16))
    with pytest.raises(FencedError):
        await one.append(16)
    await two.append(17)
    assert await rebuilt(store, tmp_path / "rebuilt") == [*range(2, 16), 17]


async def test_a_slow_starter_begins_again_though_the_floor_went_back(one, store, tmp_path):
    """The third snapshot, by which entries were deleted, was damaged on its way and is removed."""
    two = another(store, tmp_path)

    async def live_on():
        await append_and_snapshot(one, range(11, 14))
        assert await delete_up_to_the_floor(store) == 11
        await store.inner.delete((await one.snapshots().list())[-1].key)

    store.on("create", key(11), before(live_on))
    await two.start(take_over=True)
    assert two.journal.position.seq == 14
    with pytest.raises(FencedError):
        await one.append(14)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(2, 14))


async def test_a_ghost_below_the_floor_is_not_begun_from_after_a_crash(one, store, tmp_path):
    """As before, but the slow starter dies after its epoch entry landed on the freed key."""
    two = another(store, tmp_path)

    async def live_on():
        await append_and_snapshot(one, range(11, 16))
        await delete_up_to_the_floor(store)
        store.on("list_after", layout.SNAPSHOTS, crash)

    store.on("create", key(11), before(live_on))
    with pytest.raises(CrashError):
        await two.start(take_over=True)
    await two.start(take_over=True)
    assert two.replica.numbers == list(range(2, 16))


async def test_a_late_epoch_put_of_an_aborted_start_is_just_an_epoch(one, store, tmp_path):
    two = another(store, tmp_path)
    store.on("create", key(11), late, times=10_000)
    with pytest.raises(StoreUnusableError):
        await two.start(take_over=True)
    store._rules.clear()
    await one.append(11)
    await store.land()
    await one.append(12)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(2, 13))


async def test_a_zombie_that_wakes_after_two_take_overs_acknowledges_nothing(one, store, tmp_path):
    two = await another(store, tmp_path, "two").start(take_over=True)
    await two.append(11)
    three = await another(store, tmp_path, "three").start(take_over=True)
    await three.append(12)
    for zombie in (one, two):
        with pytest.raises(FencedError):
            await zombie.append(99)
    await three.append(13)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(2, 14))


async def test_an_entry_listed_but_stored_after_its_get_is_no_gap(one, store, tmp_path):
    two = another(store, tmp_path)

    async def two_more():
        await one.append(11)
        await one.append(12)

    store.on("get_range", key(11), after(two_more))
    await two.start(take_over=True)
    assert two.replica.numbers == list(range(2, 13))


async def test_a_long_log_is_replayed_in_order(store, tmp_path):
    one = await another(store, tmp_path, "one").start()
    for number in range(700):
        await one.append(number)
    two = await another(store, tmp_path).start(take_over=True)
    assert two.report.entries_replayed == 701
    assert two.replica.numbers == list(range(700))

"""The start in mode B, sentence by sentence, with other writers in between."""

import asyncio

import msgspec
import pytest
from crc32c import crc32c

from seb_appliance.errors import BucketInUseError, FencedError, FencedStartError, StoreUnusableError
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import decode, encode
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import decode_base, encode_base, make_base
from seb_appliance.storage.journal.claims import UNKNOWN_LIST_WAIT_S
from seb_appliance.storage.layout import Claim
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import list_all
from tests.support.appliances import Appliance, check_nothing, rebuilt
from tests.support.faulty_store import (
    CrashError,
    FaultyStore,
    after,
    before,
    crash,
    late,
    lost_answer,
    shows_nothing,
)

CLAIMS, BASES = layout.CLAIMS, layout.BASES


@pytest.fixture
def store():
    return FaultyStore(MemoryStore(), creates="501")


@pytest.fixture
async def one(store, tmp_path):
    """An appliance with entries 1 to 10, that carry the numbers 1 to 10."""
    appliance = await Appliance(store, tmp_path / "one").start()
    for number in range(1, 11):
        await appliance.append(number)
    return appliance


def another(store, tmp_path, name="two"):
    return Appliance(store, tmp_path / name)


async def keys(store, prefix):
    return [info.key for info in await list_all(store.inner, prefix)]


async def append_and_snapshot(appliance, numbers):
    for number in numbers:
        await appliance.append(number)
        await appliance.snapshot()


async def delete_own_up_to_the_floor(store, appliance):
    floor = await appliance.snapshots().floor()
    claim = Claim(appliance.journal.epoch, appliance.journal.writer_id)
    for seq in range(1, floor + 1):
        await store.inner.delete(layout.claimed_key(claim, seq))
    return floor


async def test_a_start_claims_one_above_the_highest_and_states_its_base(one, store, tmp_path):
    two = await another(store, tmp_path).start(take_over=True)
    highest = layout.parse_claim((await keys(store, CLAIMS))[-1])
    assert highest == Claim(2, two.journal.writer_id)
    base = decode_base(await store.get(layout.base_key(highest)), highest)
    assert base.previous == Claim(1, one.journal.writer_id)
    assert base.cut == one.journal.position
    assert base.bucket_id == one.journal.bucket_id.hex()


async def test_seq_and_header_chain_run_on_across_writers(one, store, tmp_path):
    two = await another(store, tmp_path).start(take_over=True)
    await two.append(11)
    assert (two.journal.position.seq, two.journal.position.epoch) == (11, 2)
    three = await another(store, tmp_path, "three").start(take_over=True)
    assert three.replica.numbers == list(range(1, 12))


async def test_the_claim_of_another_without_take_over_is_refused(one, store, tmp_path):
    with pytest.raises(BucketInUseError, match="epoch 1"):
        await another(store, tmp_path).start()
    assert len(await keys(store, CLAIMS)) == 1


async def test_a_lost_claim_answer_is_repeated_at_the_same_key(one, store, tmp_path):
    store.on("put", CLAIMS, lost_answer, times=3)
    await another(store, tmp_path).start(take_over=True)
    assert len(await keys(store, CLAIMS)) == 2


async def test_a_claim_that_list_does_not_show_makes_the_store_unusable(one, store, tmp_path):
    store.on("list_after", CLAIMS, shows_nothing, skip=4)  # each look is a page and an empty one
    with pytest.raises(StoreUnusableError, match="LIST does not show"):
        await another(store, tmp_path).start(take_over=True)


async def test_a_higher_claim_with_a_base_fences_a_start(one, store, tmp_path):
    three = another(store, tmp_path, "three")
    store.on("put", CLAIMS, after(lambda: three.start(take_over=True)))
    with pytest.raises(FencedStartError) as fenced:
        await another(store, tmp_path).start(take_over=True)
    assert fenced.value.exit_code == 75
    await three.append(11)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(1, 12))


async def test_a_higher_claim_after_the_base_fences_a_start(one, store, tmp_path):
    """Step 7: the base of the fenced one may then be part of nobody's chain, or of the other's."""
    three = another(store, tmp_path, "three")
    store.on("put", BASES, before(lambda: three.start(take_over=True)))
    with pytest.raises(FencedStartError):
        await another(store, tmp_path).start(take_over=True)
    await three.append(11)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(1, 12))


async def test_a_higher_claim_without_a_base_is_outwaited_once(one, store, tmp_path):
    async def abort():
        await store.put(layout.claim_key(Claim(9, b"\x01" * 16)), b"{}")

    store.on("put", CLAIMS, after(abort))
    two = another(store, tmp_path)
    began_s = two.clock.now_s
    await two.start(take_over=True)
    assert two.journal.epoch == 10
    assert len(await keys(store, BASES)) == 2  # none for the claim that was not the highest
    assert 90 <= two.clock.now_s - began_s < 100
    assert two.report.seconds == two.clock.now_s - began_s
    assert two.replica.numbers == list(range(1, 11))


async def test_a_second_higher_claim_is_not_outwaited(one, store, tmp_path):
    async def abort():
        [*_, last] = await keys(store, CLAIMS)
        await store.inner.put(
            layout.claim_key(Claim(layout.parse_claim(last).n + 1, b"\x01" * 16)), b"{}"
        )

    store.on("put", CLAIMS, after(abort), times=2)
    with pytest.raises(FencedStartError):
        await another(store, tmp_path).start(take_over=True)


async def test_an_aborted_start_is_outwaited_though_another_is_in_force_below_it(
    one, store, tmp_path
):
    """The highest of the higher claims decides: who is in force is taken over, as was asked."""
    three = another(store, tmp_path, "three")

    async def start_and_abort():
        await three.start(take_over=True)
        await three.append(11)
        await store.inner.put(layout.claim_key(Claim(9, b"\x01" * 16)), b"{}")

    store.on("put", CLAIMS, after(start_and_abort))
    two = await another(store, tmp_path).start(take_over=True)
    assert two.journal.epoch == 10
    assert two.replica.numbers == list(range(1, 12))
    with pytest.raises(FencedError):
        await three.append(12)


async def test_an_aborted_start_that_wakes_up_late_is_fenced(one, store, tmp_path):
    """It claimed, slept while another waited for it and claimed above it, and goes on."""
    three = another(store, tmp_path, "three")

    async def sleep_long():
        await three.start(take_over=True)
        await three.append(11)

    store.on("put", BASES, before(sleep_long))
    two = another(store, tmp_path)
    with pytest.raises(FencedStartError):
        await two.start(take_over=True)
    assert three.acknowledged == [11]
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(1, 12))


async def test_an_entry_that_lands_after_the_base_is_not_in_the_log(one, store, tmp_path):
    """A zombie's PUT: unacknowledged, above the cut of the new base."""
    store.on("put", layout.JOURNAL, late, times=1)
    two = another(store, tmp_path)
    store.on("put", layout.JOURNAL, before(lambda: two.start(take_over=True)))
    with pytest.raises(FencedError):
        await one.append(99)
    await store.land()
    await two.append(11)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(1, 12))


@pytest.mark.parametrize("count", [0, 10])
async def test_local_state_above_the_cut_is_a_ghost_and_put_aside(store, tmp_path, count):
    """A start replayed an unacknowledged entry that the base of another then cut off."""
    one = await another(store, tmp_path, "one").start()
    for number in range(1, count + 1):
        await one.append(number)
    two = another(store, tmp_path)
    late_one = Appliance(store, tmp_path / "one-again")

    async def meanwhile():
        # `two` has replayed `count` entries. The PUT of one more lands now; `late_one` replays it.
        await store.land()
        store.on("list_after", CLAIMS, crash)
        with pytest.raises(CrashError):
            await late_one.start(take_over=True)

    store.on("put", layout.JOURNAL, late)
    store.on("put", layout.JOURNAL, crash)
    with pytest.raises(CrashError):
        await one.append(99)
    store.on("put", BASES, before(meanwhile))
    await two.start(take_over=True)
    assert late_one.replica.numbers[-1] == 99
    await two.append(count + 1)
    await late_one.start(take_over=True)
    assert late_one.replica.numbers == list(range(1, count + 2))
    assert late_one.replica.cleared == 1


async def test_entries_deleted_under_a_start_make_it_begin_again(one, store, tmp_path):
    """The end of the log seems to come early where entries were deleted."""
    two = another(store, tmp_path)
    claim = Claim(1, one.journal.writer_id)

    async def live_on():
        await append_and_snapshot(one, range(11, 16))
        assert await delete_own_up_to_the_floor(store, one) == 13

    store.on("get_range", layout.claimed_key(claim, 11), after(live_on), times=1)
    await two.start(take_over=True)
    assert two.replica.numbers == list(range(1, 16))
    assert two.report.began_seq >= 13


async def test_entries_deleted_after_the_claim_are_missed_though_the_floor_went_back(
    one, store, tmp_path
):
    """A zombie's third snapshot, by which entries were deleted, was damaged and is removed."""
    copies = []

    async def append():
        for number in (11, 12, 13):
            await one.append(number)
            copies.append((one.journal.position, tmp_path / f"{number}"))
            await one.replica.save(copies[-1][1])

    async def zombie():
        for position, path in copies:
            await one.snapshots().publish(path, position, check_nothing)
        assert await delete_own_up_to_the_floor(store, one) == 11
        await store.inner.delete((await one.snapshots().list())[-1].key)

    two = another(store, tmp_path)
    key = layout.claimed_key(Claim(1, one.journal.writer_id), 11)
    store.on("get_range", key, after(append), times=1)
    store.on("get_range", key, before(zombie), times=1)
    await two.start(take_over=True)
    assert two.replica.numbers == list(range(1, 14))


async def test_a_floor_that_rises_after_the_claim_makes_a_start_begin_again(one, store, tmp_path):
    """Step 5: a zombie still publishes snapshots of entries that were checked long ago."""
    copies = []
    for number in (11, 12, 13):
        await one.append(number)
        copies.append((one.journal.position, tmp_path / f"{number}"))
        await one.replica.save(copies[-1][1])
    await one.append(14)

    async def zombie():
        for position, path in copies:
            await one.snapshots().publish(path, position, check_nothing)
        assert await delete_own_up_to_the_floor(store, one) == 11

    two = another(store, tmp_path)
    key = layout.claimed_key(Claim(1, one.journal.writer_id), 15)
    store.on("get_range", key, after(zombie), skip=1)
    await two.start(take_over=True)
    assert two.report.began_seq == 13
    assert two.replica.cleared == 1
    assert two.replica.numbers == list(range(1, 15))


async def test_a_start_that_sees_a_higher_claim_states_no_base(one, store, tmp_path):
    three = another(store, tmp_path, "three")
    store.on("put", CLAIMS, after(lambda: three.start(take_over=True)))
    with pytest.raises(FencedStartError):
        await another(store, tmp_path).start(take_over=True)
    assert len(await keys(store, BASES)) == 2


async def test_a_start_that_sees_a_higher_base_states_none(one, store, tmp_path):
    three = another(store, tmp_path, "three")
    # The third look at the bases is step 4's; each look is a page and an empty one.
    store.on("list_after", BASES, before(lambda: three.start(take_over=True)), skip=4)
    with pytest.raises(FencedStartError):
        await another(store, tmp_path).start(take_over=True)
    assert len(await keys(store, BASES)) == 2


async def test_a_running_writer_outwaits_nobody_who_stated_a_base_in_time(one, store):
    by = Claim(2, b"\xff" * 16)
    await store.put(layout.claim_key(by), b"{}")
    mine = Claim(1, one.journal.writer_id)
    base = make_base(by, mine, one.journal.position, one.journal.bucket_id)

    async def state_the_base():
        await store.inner.put(layout.base_key(by), encode_base(base))

    store.on("put", CLAIMS, before(state_the_base))
    with pytest.raises(FencedError):
        await one.append(99)
    assert 99 not in one.acknowledged


async def test_an_entry_other_than_the_one_that_a_base_names_is_damage(one, store, tmp_path):
    claim = Claim(1, one.journal.writer_id)
    before_last = decode(await store.get(layout.claimed_key(claim, 9))).header.position
    await another(store, tmp_path).start(take_over=True)
    other = encode(
        Contents([], []),
        [],
        after=before_last,
        epoch=1,
        writer_id=claim.writer_id,
        entry_id=b"e" * 16,
        bucket_id=one.journal.bucket_id,
        created_us=1,
    )
    key = layout.claimed_key(claim, 10)
    await store.put(key, other.body)
    with pytest.raises(StoreUnusableError, match=key + " is not the entry that the next base"):
        await another(store, tmp_path, "three").start(take_over=True)


async def test_an_entry_of_another_writer_at_a_writers_key_is_damage(one, store, tmp_path):
    other = encode(
        Contents([], []),
        [],
        after=one.journal.position,
        epoch=1,
        writer_id=b"o" * 16,
        entry_id=b"e" * 16,
        bucket_id=one.journal.bucket_id,
        created_us=1,
    )
    key = layout.claimed_key(Claim(1, one.journal.writer_id), 11)
    await store.put(key, other.body)
    with pytest.raises(StoreUnusableError, match=key + " is not an entry of the writer"):
        await another(store, tmp_path).start(take_over=True)


async def test_a_missing_entry_below_a_cut_is_damage(one, store, tmp_path):
    await another(store, tmp_path).start(take_over=True)
    missing = layout.claimed_key(Claim(1, one.journal.writer_id), 5)
    await store.inner.delete(missing)
    with pytest.raises(StoreUnusableError, match=missing + " is missing"):
        await another(store, tmp_path, "three").start(take_over=True)


async def test_a_base_that_leads_nowhere_is_damage(one, store, tmp_path):
    await another(store, tmp_path).start(take_over=True)
    lost = layout.base_key(Claim(1, one.journal.writer_id))
    await store.inner.delete(lost)
    with pytest.raises(StoreUnusableError, match=lost + " is missing"):
        await another(store, tmp_path, "three").start(take_over=True)


@pytest.mark.parametrize("field", [b'"n":', b'"crc32c":'])
async def test_a_damaged_base_is_damage(one, store, tmp_path, field):
    key = layout.base_key(Claim(1, one.journal.writer_id))
    await store.put(key, (await store.get(key)).replace(field, field + b"1"))
    with pytest.raises(StoreUnusableError, match=key + " is damaged"):
        await another(store, tmp_path).start(take_over=True)


async def test_a_base_that_says_more_than_is_known_is_not_followed(one, store, tmp_path):
    key = layout.base_key(Claim(1, one.journal.writer_id))
    base = msgspec.json.decode(await store.get(key))["base"]
    inner = msgspec.json.encode({**base, "from_the_future": 1})
    sealed = {"base": msgspec.Raw(inner), "crc32c": crc32c(inner)}
    await store.put(key, msgspec.json.encode(sealed))
    with pytest.raises(StoreUnusableError, match=key + " is damaged"):
        await another(store, tmp_path).start(take_over=True)


async def test_an_older_base_is_not_needed_beside_a_snapshot(one, store, tmp_path):
    two = await another(store, tmp_path).start(take_over=True)
    await append_and_snapshot(two, [11])
    await store.inner.delete(layout.base_key(Claim(1, one.journal.writer_id)))
    three = await another(store, tmp_path, "three").start(take_over=True)
    assert three.replica.numbers == list(range(1, 12))


async def test_a_snapshot_that_is_not_on_the_chain_is_not_used(one, store, tmp_path):
    """Made by hand: the state of a writer whose entries no base leads to."""
    stray = another(FaultyStore(MemoryStore()), tmp_path, "stray")
    stray.replica.state = msgspec.structs.replace(
        one.replica.state,
        numbers=[666],
        position=msgspec.structs.replace(one.journal.position, epoch=7, writer_id=b"s" * 16),
    )
    stray.store = store
    await stray.snapshot()
    two = await another(store, tmp_path).start(take_over=True)
    assert two.replica.numbers == list(range(1, 11))


async def test_snapshots_of_earlier_writers_lie_on_the_chain(one, store, tmp_path):
    await one.snapshot()
    two = await another(store, tmp_path).start(take_over=True)
    await two.append(11)
    three = await another(store, tmp_path, "three").start(take_over=True)
    assert three.report.began_seq == 10
    assert three.replica.numbers == list(range(1, 12))


async def test_on_an_unknown_store_a_start_that_finds_a_claim_waits_a_minute(one, store, tmp_path):
    two = another(store, tmp_path)
    await two.start(take_over=True, list_is_known=False)
    assert 60.0 in two.clock.slept_s
    two.clock.slept_s.clear()
    await two.start(list_is_known=False)
    assert 60.0 in two.clock.slept_s  # the claim of the other is still there


async def test_a_start_that_waits_for_listings_is_not_taken_for_an_aborted_one(
    one, store, tmp_path
):
    """The other appends all the while, and its clock is a minute on when the wait is over."""
    two, began_s = another(store, tmp_path), one.clock.now_s
    minute_over, started = asyncio.Event(), asyncio.Event()
    appending = []

    async def sleep_of_one(seconds):
        one.clock.now_s += seconds
        if one.clock.now_s - began_s >= UNKNOWN_LIST_WAIT_S:
            minute_over.set()
            await started.wait()

    async def sleep_of_two(seconds):
        assert seconds == UNKNOWN_LIST_WAIT_S
        appending.append(asyncio.create_task(one.append(11)))
        waiting = asyncio.create_task(minute_over.wait())
        await asyncio.wait([*appending, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    one.clock.sleep, two.clock.sleep = sleep_of_one, sleep_of_two
    await two.start(take_over=True, list_is_known=False)
    started.set()
    with pytest.raises(FencedError):
        await appending[0]
    await two.append(12)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(1, 13))


async def test_on_an_unknown_store_it_waits_again_after_it_outwaited_an_aborted_start(
    store, tmp_path
):
    async def abort():
        await store.put(layout.claim_key(Claim(9, b"\x01" * 16)), b"{}")

    store.on("put", CLAIMS, after(abort))
    one = another(store, tmp_path, "one")
    await one.start(list_is_known=False)
    assert one.journal.epoch == 10
    assert one.clock.slept_s.count(60.0) == 1  # for the claim that was not there before


async def test_nobody_waits_for_claims_of_his_own(store, tmp_path):
    one = await another(store, tmp_path, "one").start(list_is_known=False)
    await one.start(list_is_known=False)
    assert 60.0 not in one.clock.slept_s


async def test_a_zombie_that_wakes_after_two_take_overs_acknowledges_nothing(one, store, tmp_path):
    two = await another(store, tmp_path, "two").start(take_over=True)
    await two.append(11)
    three = await another(store, tmp_path, "three").start(take_over=True)
    await three.append(12)
    for zombie in (one, two):
        with pytest.raises(FencedError):
            await zombie.append(99)
    await three.append(13)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(1, 14))


async def test_a_foreign_object_among_the_claims_is_named(one, store, tmp_path):
    await store.put(CLAIMS + "notes.txt", b"x")
    with pytest.raises(StoreUnusableError, match=r"notes\.txt"):
        await another(store, tmp_path).start(take_over=True)

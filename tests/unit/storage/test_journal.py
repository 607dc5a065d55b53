"""Appending: every row of the table "What an answer means", in both fencing modes."""

import asyncio
import copy

import pytest

from seb_appliance.broker.ports import EntryRef
from seb_appliance.errors import FencedError
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import decode, encode
from seb_appliance.storage import layout
from seb_appliance.storage.journal.replay import READS_OF_A_BAD_ENTRY
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliances import Appliance, rebuilt
from tests.support.faulty_store import (
    FaultyStore,
    after,
    before,
    conflict,
    denied,
    false_412,
    flipped_bit,
    late,
    lost_answer,
    never_arrived,
    skewed,
    unavailable,
)

JOURNAL = "/journal/"


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture(params=["A", "B"])
async def appliance(request, store, tmp_path):
    return await Appliance(store, tmp_path / "one").start(mode=request.param)


def put_of(appliance):
    return "create" if appliance.journal.mode == "A" else "put"


async def contents_of(store, tmp_path):
    return await rebuilt(store.inner, tmp_path / "rebuilt")


async def test_an_acknowledged_entry_is_in_the_bucket(appliance, store, tmp_path):
    await appliance.append(1)
    await appliance.append(2)
    assert await contents_of(store, tmp_path) == [1, 2]


@pytest.mark.parametrize("fault", [lost_answer, never_arrived, unavailable, conflict, skewed])
async def test_an_unclear_answer_is_followed_by_the_same_bytes(appliance, store, tmp_path, fault):
    store.on(put_of(appliance), JOURNAL, fault, times=3)
    await appliance.append(1)
    await appliance.append(2)
    assert store.count(put_of(appliance), JOURNAL) >= 4
    assert await contents_of(store, tmp_path) == [1, 2]


async def test_an_attempt_that_lands_after_its_successor_changes_nothing(
    appliance, store, tmp_path
):
    store.on(put_of(appliance), JOURNAL, late)
    await appliance.append(1)
    await appliance.append(2)
    await store.land()
    assert await contents_of(store, tmp_path) == [1, 2]


async def test_a_denied_request_is_repeated_slowly_and_reported(appliance, store):
    seen = []

    async def look():
        health = appliance.journal.health
        seen.append((health.denied, health.failing_since_s is not None, health.failure))

    store.on(put_of(appliance), JOURNAL, denied)
    store.on(put_of(appliance), JOURNAL, before(look))
    appliance.clock.slept_s.clear()
    await appliance.append(1)
    assert seen == [(True, True, "403 InvalidAccessKeyId")]
    assert appliance.clock.slept_s[0] >= 2
    assert appliance.journal.health.failing_since_s is None
    assert not appliance.journal.health.denied


async def test_skewed_time_is_repeated_at_once(appliance, store):
    store.on(put_of(appliance), JOURNAL, skewed)
    appliance.clock.slept_s.clear()
    await appliance.append(1)
    assert appliance.clock.slept_s == []


async def test_retries_have_no_end(appliance, store):
    store.on(put_of(appliance), JOURNAL, unavailable, times=500)
    before_s = appliance.clock.now_s
    await appliance.append(1)
    assert appliance.clock.now_s - before_s > 200
    assert appliance.acknowledged == [1]


async def test_entries_are_chained_by_their_header_crcs(appliance, store):
    await appliance.append(1)
    first = appliance.journal.position
    await appliance.append(2)
    last = appliance.journal.position
    ref = EntryRef(last.seq, last.epoch, last.writer_id)
    key = layout.object_key(appliance.journal.mode, ref)
    header = decode(await store.inner.get(key)).header
    assert header.prev_header_crc == first.header_crc
    assert header.follows(first)


async def test_created_never_goes_back(appliance):
    await appliance.append(1)
    earlier = appliance.journal.position.created_us
    encoded = appliance.journal.encoder(earlier - 5_000_000)(Contents([], []), [])
    await appliance.journal.append(encoded)
    assert encoded.entry.header.created_us == earlier


async def test_an_entry_encoded_while_another_is_appended_continues_the_log(
    in_mode_a, store, tmp_path
):
    await in_mode_a.append(1)
    journal, now_us = in_mode_a.journal, in_mode_a.clock.wall_us()
    first, second = (journal.encoder(now_us - n)(Contents([], []), []) for n in (0, 5_000_000))
    assert second.entry.header.follows(first.entry.header.position)
    assert second.entry.header.created_us >= first.entry.header.created_us
    await journal.append(first)
    await journal.append(second)
    assert journal.position == second.entry.header.position
    assert await contents_of(store, tmp_path)


async def test_a_cancelled_append_ends_the_journal(appliance, store):
    arrived = asyncio.Event()

    async def wait_for_ever():
        arrived.set()
        await asyncio.Event().wait()

    store.on(put_of(appliance), JOURNAL, before(wait_for_ever))
    task = asyncio.create_task(appliance.append(1))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(FencedError, match="cut short"):
        await appliance.append(2)


# --- mode A ---


@pytest.fixture
async def in_mode_a(store, tmp_path):
    return await Appliance(store, tmp_path / "one").start()


async def test_412_for_our_own_lost_attempt_is_success(in_mode_a, store, tmp_path):
    store.on("create", JOURNAL, lost_answer)
    await in_mode_a.append(1)
    assert store.count("create", JOURNAL) == 3  # the epoch entry, and two attempts
    assert await contents_of(store, tmp_path) == [1]


async def test_412_and_then_404_was_a_false_answer(in_mode_a, store, tmp_path):
    store.on("create", JOURNAL, false_412, times=2)
    await in_mode_a.append(1)
    assert await contents_of(store, tmp_path) == [1]


async def test_412_for_an_entry_of_another_writer_fences(in_mode_a, store, tmp_path):
    other = await Appliance(store, tmp_path / "two").start(take_over=True)
    await other.append(7)
    with pytest.raises(FencedError) as fenced:
        await in_mode_a.append(1)
    assert fenced.value.side_effects == "none"
    assert await contents_of(store, tmp_path) == [7]


async def test_a_fenced_journal_stays_fenced_and_asks_nothing(in_mode_a, store, tmp_path):
    await Appliance(store, tmp_path / "two").start(take_over=True)
    for _ in range(2):
        with pytest.raises(FencedError):
            await in_mode_a.append(1)
    asked = len(store.requests)
    with pytest.raises(FencedError):
        await in_mode_a.journal.confirm_in_force()
    assert len(store.requests) == asked


async def test_a_clone_that_repeats_entry_ids_is_told_apart_by_the_header_crc(tmp_path):
    store = FaultyStore(MemoryStore())
    one = await Appliance(store, tmp_path / "one", seed=5).start()
    journal = one.journal
    # The clone has the same writer id, epoch and entry id, and something else to say.
    clone_id = one.random_bytes(16)
    journal._random_bytes = lambda n: clone_id
    clone = encode(
        Contents([], []),
        [b"12345678"],
        after=journal.position,
        epoch=journal.epoch,
        writer_id=journal.writer_id,
        entry_id=clone_id,
        bucket_id=journal.bucket_id,
        created_us=1,
    )
    await store.create(layout.create_only_key(journal.position.seq + 1), clone.body)
    with pytest.raises(FencedError):
        await one.append(1)
    assert one.acknowledged == []


async def test_a_damaged_answer_about_a_taken_key_decides_nothing(in_mode_a, store, tmp_path):
    store.on("create", JOURNAL, lost_answer)
    store.on("get_range", JOURNAL, flipped_bit, times=4)
    await in_mode_a.append(1)
    assert await contents_of(store, tmp_path) == [1]


async def test_an_unreadable_next_header_decides_nothing_while_an_append_is_under_way(
    in_mode_a, store, tmp_path
):
    store.on("create", JOURNAL, after(in_mode_a.journal.confirm_in_force))
    store.on("get_range", JOURNAL, flipped_bit, times=READS_OF_A_BAD_ENTRY)
    await in_mode_a.append(1)
    await in_mode_a.append(2)
    assert await contents_of(store, tmp_path) == [1, 2]


async def test_confirm_in_force_sees_a_newer_writer(appliance, store, tmp_path):
    await appliance.append(1)
    await appliance.journal.confirm_in_force()
    await Appliance(store, tmp_path / "two").start(take_over=True)
    with pytest.raises(FencedError):
        await appliance.journal.confirm_in_force()
    with pytest.raises(FencedError):
        await appliance.append(2)


# --- mode B ---


@pytest.fixture
async def in_mode_b(store, tmp_path):
    return await Appliance(store, tmp_path / "one").start(mode="B")


async def test_each_append_looks_for_higher_claims_after_its_put(in_mode_b, store):
    store.requests.clear()
    await in_mode_b.append(1)
    assert [method for method, _ in store.requests] == ["put", "list_after"]


async def test_a_higher_claim_between_put_and_list_keeps_the_entry_unacknowledged(
    in_mode_b, store, tmp_path
):
    other = Appliance(store, tmp_path / "two")
    store.on("list_after", "/claims/", before(lambda: other.start(take_over=True)))
    with pytest.raises(FencedError) as fenced:
        await in_mode_b.append(1)
    assert fenced.value.side_effects == "unknown"
    assert in_mode_b.acknowledged == []
    assert other.replica.numbers == [1]  # it was stored before the other replayed
    await other.append(2)
    assert await contents_of(store, tmp_path) == [1, 2]


async def test_an_unclear_claims_list_is_repeated(in_mode_b, store, tmp_path):
    store.on("list_after", "/claims/", unavailable, times=3)
    await in_mode_b.append(1)
    assert await contents_of(store, tmp_path) == [1]


async def test_a_zombies_entries_after_the_take_over_are_in_nobodys_log(in_mode_b, store, tmp_path):
    await in_mode_b.append(1)
    other = await Appliance(store, tmp_path / "two").start(take_over=True)
    await other.append(2)
    with pytest.raises(FencedError):
        await in_mode_b.append(3)
    assert await contents_of(store, tmp_path) == [1, 2]


async def test_an_aborted_start_of_another_costs_90_s_and_no_acknowledged_entry(
    in_mode_b, store, tmp_path
):
    await in_mode_b.append(1)
    claim = layout.Claim(in_mode_b.journal.epoch + 1, b"\xff" * 16)
    await store.put(layout.claim_key(claim), b"{}")
    began_s = in_mode_b.clock.now_s
    await in_mode_b.append(2)
    assert 90 <= in_mode_b.clock.now_s - began_s < 100
    assert in_mode_b.journal.epoch == claim.n + 1
    await in_mode_b.append(3)
    assert await contents_of(store, tmp_path) == [1, 2, 3]


async def test_a_higher_claim_that_gets_its_base_fences(in_mode_b, store, tmp_path):
    other = Appliance(store, tmp_path / "two")
    store.on("list_after", "/bases/", before(lambda: other.start(take_over=True)), skip=1)
    claim = layout.Claim(in_mode_b.journal.epoch + 1, b"\xff" * 16)
    await store.put(layout.claim_key(claim), b"{}")
    with pytest.raises(FencedError):
        await in_mode_b.append(2)
    assert other.journal.position.seq >= 1


@pytest.mark.parametrize("mode", ["A", "B"])
@pytest.mark.parametrize("sign", ["a pause", "a broken connection"])
async def test_a_process_whose_machine_was_set_back_with_its_memory_replaces_nothing(
    store, tmp_path, mode, sign
):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    await one.append(1)
    memory = copy.copy(one.journal), copy.deepcopy(one.replica)
    await one.append(2)
    await one.append(3)
    one.journal, one.replica = memory
    if sign == "a pause":
        one.clock.now_s += 60
    else:
        store.on(put_of(one), JOURNAL, never_arrived)
    with pytest.raises(FencedError):
        await one.append(4)
    assert one.acknowledged == await contents_of(store, tmp_path) == [1, 2, 3]


async def test_a_writer_that_was_idle_looks_at_its_key_before_the_put(in_mode_b, store):
    in_mode_b.clock.now_s += 60
    store.requests.clear()
    await in_mode_b.append(1)
    await in_mode_b.append(2)
    asked = [method for method, _ in store.requests]
    assert asked == ["get_range", "put", "list_after", "put", "list_after"]


async def test_an_attempt_of_its_own_that_landed_unanswered_is_put_again(
    in_mode_b, store, tmp_path
):
    store.on("put", JOURNAL, lost_answer)
    store.on("get_range", JOURNAL, flipped_bit)
    await in_mode_b.append(1)
    assert await contents_of(store, tmp_path) == [1]


def test_entry_keys_of_both_modes():
    ref = EntryRef(seq=12, epoch=3, writer_id=b"\xab" * 16)
    assert layout.object_key("A", ref) == "_seb/journal/00000000000000000012.seb"
    assert layout.object_key("B", ref) == (
        f"_seb/journal/0000000003-{'ab' * 16}/00000000000000000012.seb"
    )

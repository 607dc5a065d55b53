"""What a start refuses, creates and reports, in both modes."""

import asyncio

import pytest

from seb_appliance.errors import (
    BucketInUseError,
    ConfigurationError,
    FencedError,
    StoreAwayError,
    StoreUnusableError,
)
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bucket_info import decode_bucket_info
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import list_all
from tests.support.appliances import Appliance, rebuilt
from tests.support.faulty_store import FaultyStore, before, denied, unavailable


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture(params=["A", "B"])
def mode(request):
    return request.param


async def test_an_empty_bucket_becomes_ours(store, tmp_path, mode):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    info = decode_bucket_info(await store.get(layout.BUCKET))
    assert (info.mode, info.id_bytes) == (mode, one.journal.bucket_id)
    assert (one.report.began_from, one.report.epoch, one.report.mode) == ("empty", 1, mode)
    assert one.report.newest_snapshot_seq == 0


async def test_a_restart_goes_on_from_local_state_in_the_next_epoch(store, tmp_path, mode):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    await one.append(1)
    await one.start()
    assert one.report.began_from == "local"
    assert one.report.entries_replayed == 0
    assert one.report.epoch == 2
    await one.append(2)
    assert await rebuilt(store, tmp_path / "rebuilt") == [1, 2]


async def test_a_start_is_refused_when_a_copy_into_its_bucket_begins_meanwhile(
    store, tmp_path, mode
):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    await one.append(1)
    before_it = await list_all(store, layout.JOURNAL), await list_all(store, layout.BASES)
    store.on("list_after", layout.SNAPSHOTS, before(lambda: store.inner.put(layout.COPY, b"{}")))
    with pytest.raises(StoreUnusableError, match="is an unfinished copy"):
        await Appliance(store, tmp_path / "two").start(take_over=True)
    after_it = await list_all(store, layout.JOURNAL), await list_all(store, layout.BASES)
    assert after_it == before_it


async def test_a_lost_disk_costs_nothing(store, tmp_path, mode):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    for number in range(50):
        await one.append(number)
    assert await rebuilt(store, tmp_path / "rebuilt") == list(range(50))


async def test_a_bucket_in_use_is_refused_without_take_over(store, tmp_path, mode):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    await one.append(1)
    laptop = Appliance(store, tmp_path / "laptop")
    laptop.clock.now_s = one.clock.now_s + 3
    with pytest.raises(BucketInUseError, match=r"epoch 1, writer .*last entry 3 s ago") as refused:
        await laptop.start()
    assert refused.value.exit_code == 73
    assert "--take-over" in refused.value.detail
    await one.append(2)
    assert one.acknowledged == [1, 2]


async def test_take_over_fences_and_the_data_directory_then_knows_its_own(store, tmp_path, mode):
    await Appliance(store, tmp_path / "one").start(mode=mode)
    two = await Appliance(store, tmp_path / "two").start(take_over=True)
    await two.append(1)
    await two.start()
    assert two.report.epoch == 3


async def test_take_over_when_new_is_for_the_first_start_of_a_data_directory(store, tmp_path, mode):
    one, two = Appliance(store, tmp_path / "one"), Appliance(store, tmp_path / "two")
    await one.start(mode=mode, take_over_when_new=True)
    await two.start(take_over_when_new=True)
    await two.append(1)
    with pytest.raises(BucketInUseError):  # else both would fence each other for ever
        await one.start(take_over_when_new=True)
    await two.append(2)
    assert two.acknowledged == [1, 2]


async def test_local_state_and_no_bucket_json_is_never_initialised(store, tmp_path, mode):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    await one.append(1)
    empty = FaultyStore(MemoryStore())
    one.store = empty
    with pytest.raises(ConfigurationError, match=r"no _seb/bucket\.json") as refused:
        await one.start()
    assert refused.value.exit_code == 78
    assert empty.count("put") + empty.count("create") == 0


async def test_the_local_state_of_another_bucket_is_refused(store, tmp_path, mode):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    await one.append(1)
    other = FaultyStore(MemoryStore())
    await Appliance(other, tmp_path / "two").start(mode=mode)
    one.store = other
    with pytest.raises(ConfigurationError, match="is of bucket"):
        await one.start(take_over=True)
    assert one.replica.cleared == 0


@pytest.mark.parametrize("key", ["photos/cat.jpg", "readme.txt", "topic/123.record_batch"])
async def test_somebody_elses_data_is_refused(store, tmp_path, key):
    await store.put(key, b"x")
    with pytest.raises(ConfigurationError, match=r"other data \(" + key):
        await Appliance(store, tmp_path / "one").start()


async def test_a_go_brokers_topics_may_lie_beside_ours(store, tmp_path):
    for offset in range(3):
        await store.put(f"orders.eu/{offset:012d}.record_batch", b"x")
    await store.put("orders.eu/1.offsets", b"x")
    await store.put("Zebra/000000000000.record_batch", b"x")
    await Appliance(store, tmp_path / "one").start()


async def test_a_journal_without_bucket_json_is_refused(store, tmp_path):
    await Appliance(store, tmp_path / "one").start()
    await store.delete(layout.BUCKET)
    with pytest.raises(StoreUnusableError, match=r"no _seb/bucket\.json"):
        await Appliance(store, tmp_path / "two").start(take_over=True)


def test_bytes_that_are_no_bucket_info_are_damage():
    with pytest.raises(StoreUnusableError, match="cannot be read"):
        decode_bucket_info(b'{"a":' + b"[" * 5_000)


async def test_in_mode_b_bucket_json_is_mended_from_the_highest_base(store, tmp_path):
    one = await Appliance(store, tmp_path / "one").start(mode="B")
    await one.append(1)
    await store.delete(layout.BUCKET)
    await one.start()
    info = decode_bucket_info(await store.get(layout.BUCKET))
    assert (info.mode, info.id_bytes) == ("B", one.journal.bucket_id)


async def test_in_mode_b_a_bucket_without_bases_is_damaged(store, tmp_path):
    one = await Appliance(store, tmp_path / "one").start(mode="B")
    for info in await list_all(store, layout.BASES):
        await store.delete(info.key)
    with pytest.raises(StoreUnusableError, match="_seb/bases/"):
        await one.start()


async def test_a_store_that_lost_create_only_stops_a_bucket_in_mode_a(store, tmp_path):
    one = await Appliance(store, tmp_path / "one").start()
    store.creates = "501"
    with pytest.raises(StoreUnusableError, match="never changes automatically") as refused:
        await one.start()
    assert refused.value.exit_code == 74


async def test_a_store_that_gained_create_only_changes_nothing(store, tmp_path):
    store.creates = "501"
    one = await Appliance(store, tmp_path / "one").start()
    store.creates = "only if absent"
    await one.start()
    assert one.report.mode == "B"


async def test_a_bucket_of_a_newer_release_is_refused(store, tmp_path):
    await Appliance(store, tmp_path / "one").start()
    body = await store.get(layout.BUCKET)
    await store.put(layout.BUCKET, body.replace(b'"journal_entry": 1', b'"journal_entry": 2'))
    with pytest.raises(ConfigurationError, match="journal_entry version 2"):
        await Appliance(store, tmp_path / "two").start(take_over=True)


async def test_software_that_cannot_read_the_bucket_claims_nothing(store, tmp_path, mode):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    await one.append(1)
    await one.append(2)
    [first] = [x for x in await list_all(store, layout.JOURNAL) if x.key.endswith("1.seb")]
    body = bytearray(await store.get(first.key))
    body[60] ^= 1
    await store.put(first.key, bytes(body))
    claims = await list_all(store, layout.CLAIMS)
    with pytest.raises(StoreUnusableError, match=first.key):
        await Appliance(store, tmp_path / "two").start(take_over=True)
    assert await list_all(store, layout.CLAIMS) == claims
    await one.append(3)
    assert one.acknowledged == [1, 2, 3]


async def test_a_start_without_answers_gives_up_after_a_minute(store, tmp_path):
    store.on("get", "bucket.json", unavailable, times=10_000)
    one = Appliance(store, tmp_path / "one")
    with pytest.raises(StoreAwayError, match="503 SlowDown") as away:
        await one.start()
    assert away.value.exit_code == 69  # a service manager starts it again
    assert 60 <= one.clock.now_s - 1000 < 70


async def test_a_start_that_is_denied_says_so_at_once(store, tmp_path):
    store.on("get", "bucket.json", denied)
    one = Appliance(store, tmp_path / "one")
    with pytest.raises(StoreUnusableError, match="403 InvalidAccessKeyId") as refused:
        await one.start()
    assert refused.value.exit_code == 74  # it does not: a person must act
    assert one.clock.slept_s == []


async def test_two_first_starts_at_once_leave_one_in_force(tmp_path, mode):
    """In mode A the loser finds the winner's epoch and asks for --take-over."""
    for round_number in range(20):
        store = FaultyStore(MemoryStore())
        folder = tmp_path / f"{round_number}"
        pair = [Appliance(store, folder / name) for name in ("one", "two")]
        results = await asyncio.gather(
            *(appliance.start(mode=mode) for appliance in pair), return_exceptions=True
        )
        in_force = []
        for appliance, result in zip(pair, results, strict=True):
            if result is appliance:
                try:
                    await appliance.append(round_number)
                    in_force.append(appliance)
                except FencedError:
                    assert appliance.acknowledged == []
        assert len(in_force) == 1
        numbers = await rebuilt(store, folder / "rebuilt")
        assert {number for x in pair for number in x.acknowledged} <= set(numbers)
        assert len(numbers) == len(set(numbers))


async def test_a_long_pause_that_only_this_machines_clock_tells_is_warned_of(store, tmp_path, mode):
    one = await Appliance(store, tmp_path / "one").start(mode=mode)
    await one.append(1)
    for passed_s, date_ahead_s, warned in (
        (23 * 3600, None, False),
        (49 * 3600, None, True),
        (49 * 3600, 1.0, False),
    ):
        one.clock.now_s += passed_s
        if date_ahead_s is not None:
            store.date_ahead_s = date_ahead_s
        await one.start()
        told = [sentence for sentence in one.report.warnings if "not recognized" in sentence]
        assert bool(told) == warned
        await one.append(2)

"""Turns that a start and a writer take seldom: each is a branch of fencing or recovery."""

from __future__ import annotations

import msgspec
import pytest

from seb_appliance.errors import (
    BucketInUseError,
    CorruptObjectError,
    FencedError,
    NewerReleaseError,
    ObjectMissingError,
    StoreUnusableError,
)
from seb_appliance.formats.entry import Position, decode
from seb_appliance.storage import layout
from seb_appliance.storage.journal import replay
from seb_appliance.storage.journal.bases import decode_base, encode_base
from seb_appliance.storage.journal.bucket_info import BucketInfo, encode_bucket_info
from seb_appliance.storage.layout import Claim, SnapshotName
from seb_appliance.storage.recovery import snapshots
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliances import Appliance, check_nothing
from tests.support.fakes import settle
from tests.support.faulty_store import FaultyStore, after, before

ENTRIES = range(2, 11)


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture
async def one(store, tmp_path):
    """In mode A, with entries 1 (epoch) to 10."""
    return await filled(Appliance(store, tmp_path / "one"), mode="A")


@pytest.fixture
async def claimed(store, tmp_path):
    """In mode B, with entries 1 to 9."""
    return await filled(Appliance(store, tmp_path / "one"), mode="B")


async def filled(appliance, **options):
    await appliance.start(**options)
    for number in ENTRIES:
        await appliance.append(number)
    return appliance


def another(store, tmp_path, name="two"):
    return Appliance(store, tmp_path / name)


def key(seq):
    return layout.create_only_key(seq)


async def snapshots_at(appliance, *numbers):
    for number in numbers:
        await appliance.append(number)
        await appliance.snapshot()


def state_of(appliance):
    saved = appliance.replica.state
    return msgspec.structs.replace(saved, numbers=list(saved.numbers))


# --- entries ---


async def test_rubbish_at_the_next_key_fences(one, store):
    await store.put(key(11), b"x" * 200)
    with pytest.raises(FencedError, match="the next key of the journal is taken") as fenced:
        await one.journal.confirm_in_force()
    assert fenced.value.side_effects == "unknown"
    with pytest.raises(FencedError):
        await one.append(11)


async def test_an_object_longer_than_its_entry_is_damage(one, store, tmp_path):
    await store.put(key(5), await store.get(key(5)) + b"\0" * 8)
    with pytest.raises(StoreUnusableError, match=r"the entry says \d+ bytes, the object has"):
        await another(store, tmp_path).start(take_over=True)


async def test_a_long_table_of_contents_is_read_to_its_end(one, store, tmp_path, monkeypatch):
    monkeypatch.setattr(replay.limits, "ENTRY_HEAD_READ_BYTES", replay.HEADER_BYTES + 1)
    two = await another(store, tmp_path).start(take_over=True)
    assert two.replica.numbers == list(ENTRIES)


async def test_a_table_of_contents_that_ends_with_the_first_read_is_read_once(
    one, store, tmp_path, monkeypatch
):
    head_bytes = decode(await store.get(key(5))).header.sections_at
    monkeypatch.setattr(replay.limits, "ENTRY_HEAD_READ_BYTES", head_bytes)
    two = await another(store, tmp_path).start(take_over=True)
    assert two.replica.numbers == list(ENTRIES)
    assert store.count("get_range", key(5)) == 1


async def test_the_view_takes_one_transaction_at_a_time(one, store, tmp_path, monkeypatch):
    monkeypatch.setattr(replay, "APPLY_ENTRIES", 2)
    two = another(store, tmp_path)
    apply, under_way, at_most = two.replica.apply, 0, 0

    async def slowly(batch):
        nonlocal under_way, at_most
        under_way += 1
        at_most = max(at_most, under_way)
        await settle()
        await apply(batch)
        under_way -= 1

    monkeypatch.setattr(two.replica, "apply", slowly)
    await two.start(take_over=True)
    assert two.replica.numbers == list(ENTRIES)
    assert at_most == 1


async def test_an_entry_at_the_key_of_another_is_damage_in_mode_b(claimed, store, tmp_path):
    claim = Claim(1, claimed.journal.writer_id)
    later = await store.get(layout.claimed_key(claim, 6))
    await store.put(layout.claimed_key(claim, 5), later)
    with pytest.raises(StoreUnusableError, match="is damaged"):
        await another(store, tmp_path).start(take_over=True)


# --- snapshots ---


async def test_a_strange_key_among_the_snapshots_is_named(one, store):
    await store.put(f"{layout.SNAPSHOTS}notes.txt", b"mine")
    with pytest.raises(StoreUnusableError, match=r"notes\.txt is not a snapshot of this appliance"):
        await one.snapshots().list()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"no zstd", "cannot be decompressed"),
        (None, "ends before its frame does"),
    ],
)
async def test_a_snapshot_that_was_sealed_wrongly_is_never_used(
    one, store, tmp_path, body, sentence
):
    source = tmp_path / "state"
    source.write_bytes(b"state" * 100)
    sealed = body or snapshots._pack(source)[:-3]
    name = SnapshotName(9, snapshots._digest(sealed))
    await store.put(name.key, sealed)
    with pytest.raises(CorruptObjectError, match=sentence):
        await one.snapshots().fetch(name, tmp_path / "fetched")


async def test_a_snapshot_that_goes_while_it_is_read_is_looked_for_anew(one, store, tmp_path):
    await snapshots_at(one, 11, 12)
    newest = (await one.snapshots().list())[-1]
    store.on("get", newest.key, before(lambda: store.inner.delete(newest.key)))
    two = await another(store, tmp_path).start(take_over=True)
    assert two.report.began_seq == 11
    assert two.replica.numbers == [*ENTRIES, 11, 12]


async def test_a_snapshot_that_is_listed_and_not_there_is_passed_over(one, store, tmp_path):
    await snapshots_at(one, 11, 12)
    newest = (await one.snapshots().list())[-1]

    async def missing(store, key, request):
        raise ObjectMissingError("404", key=key)

    store.on("get", newest.key, missing, times=9)
    read_back = store.count("get", newest.key)
    two = await another(store, tmp_path).start(take_over=True)
    assert two.report.began_seq == 11
    assert store.count("get", newest.key) == read_back + 2


async def test_a_snapshot_of_another_entry_than_its_name_says_is_not_begun_from(
    one, store, tmp_path
):
    await snapshots_at(one, 11)
    await one.append(12)
    source = tmp_path / "state"
    await one.replica.save(source)
    await one.append(13)
    await one.snapshots().publish(source, Position(seq=13), check_nothing)
    two = await another(store, tmp_path).start(take_over=True)
    assert two.report.began_seq == 11
    assert two.replica.numbers == [*ENTRIES, 11, 12, 13]


# --- local state ---


async def test_local_state_that_ends_at_a_deleted_entry_of_the_floor_is_not_ahead(one, store):
    await snapshots_at(one, 11)
    old = state_of(one)
    await snapshots_at(one, 12, 13)
    await store.inner.delete(key(11))
    one.replica.state = old
    await one.start()
    assert one.replica.numbers == [*ENTRIES, 11, 12, 13]
    assert not [note for note in one.report.warnings if "put aside" in note]


def of_a_newer_release(appliance):
    async def restore(_):
        raise NewerReleaseError("a newer release wrote it")

    appliance.replica.restore = restore
    return appliance


async def test_what_a_newer_release_wrote_is_replayed_from_what_came_before(one, store, tmp_path):
    await snapshots_at(one, 11)
    two = of_a_newer_release(another(store, tmp_path))
    await two.start(take_over=True)
    assert two.report.began_from == "empty"
    assert two.replica.numbers == [*ENTRIES, 11]


async def test_what_only_a_newer_release_can_read_is_no_damage(one, store, tmp_path):
    await snapshots_at(one, 11, 12, 13)
    for seq in range(2, 12):
        await store.inner.delete(key(seq))
    with pytest.raises(NewerReleaseError):
        await of_a_newer_release(another(store, tmp_path)).start(take_over=True)


# --- who is in force ---


async def test_a_bucket_in_use_without_an_entry_is_refused_too(store, tmp_path):
    await another(store, tmp_path, "one").start(mode="B")
    with pytest.raises(BucketInUseError, match=r"epoch 1, writer \w+…\)"):
        await another(store, tmp_path).start()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (119, "119 s"),
        (120, "2 min"),
        (7_199, "119 min"),
        (7_200, "2 h"),
        (172_799, "47 h"),
        (172_800, "2 days"),
        (864_000, "10 days"),
    ],
)
async def test_how_old_the_last_entry_is_is_told_in_words(one, store, tmp_path, seconds, words):
    laptop = another(store, tmp_path)
    laptop.clock.now_s = one.clock.now_s + seconds
    with pytest.raises(BucketInUseError, match=f"last entry {words} ago"):
        await laptop.start()


async def test_two_first_starts_that_chose_different_modes_do_not_both_go_on(store, tmp_path):
    other = BucketInfo(bucket_id=b"o".hex() * 16, mode="B")

    async def faster():
        await store.inner.put(layout.BUCKET, encode_bucket_info(other))

    store.on("create", layout.BUCKET, before(faster))
    with pytest.raises(StoreUnusableError, match="in mode B"):
        await another(store, tmp_path).start(mode="A")


async def test_the_base_of_another_writer_is_none(claimed, store):
    mine = Claim(1, claimed.journal.writer_id)
    base = decode_base(await store.get(layout.base_key(mine)), mine)
    with pytest.raises(ValueError, match="of another writer"):
        decode_base(encode_base(base), Claim(2, mine.writer_id))


async def claim_by_another(store, n=7):
    claim = Claim(n, b"Z" * 16)
    await store.inner.put(layout.claim_key(claim), b"{}")


async def test_who_asks_during_an_append_that_claims_anew_is_not_told_of_a_fence(claimed, store):
    asked = []

    async def contested():
        await claim_by_another(store)
        await claimed.journal.confirm_in_force()
        asked.append(True)

    store.on("put", layout.JOURNAL, before(contested))
    await claimed.append(11)  # the other claim is an aborted start
    assert asked
    assert claimed.journal.epoch == 8


async def test_who_is_overtaken_while_it_claims_anew_is_fenced(claimed, store):
    store.on("put", layout.JOURNAL, before(lambda: claim_by_another(store)))
    store.on("put", layout.CLAIMS, after(lambda: claim_by_another(store, 99)))
    with pytest.raises(FencedError, match="epoch 7"):
        await claimed.append(11)


async def test_a_writer_that_is_fenced_leaves_no_claim_behind(claimed, store, tmp_path):
    two = await another(store, tmp_path).start(take_over=True)
    before_it = await store.inner.list_after(layout.CLAIMS)
    with pytest.raises(FencedError):
        await claimed.append(11)
    assert await store.inner.list_after(layout.CLAIMS) == before_it
    await two.append(12)


async def test_a_journal_that_was_cut_short_is_in_force_no_more(claimed, store):
    async def broken():
        raise ConnectionAbortedError

    store.on("put", layout.JOURNAL, before(broken))
    with pytest.raises(ConnectionAbortedError):
        await claimed.append(11)
    with pytest.raises(FencedError, match="cut short"):
        await claimed.journal.confirm_in_force()

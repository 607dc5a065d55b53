"""Following the journal of another writer: what is read, what is asked for it, and what is not."""

import random

import pytest

from seb_appliance.errors import ConfigurationError, FencedError, StandbyError, StartError
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import encode, read_header
from seb_appliance.formats.operations import TopicDeleted
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import encode_base, make_base
from seb_appliance.storage.journal.followed import BASES_S, FLOOR_S
from seb_appliance.storage.journal.replay import ReplayError
from seb_appliance.storage.journal.retry import START_PATIENCE_S
from seb_appliance.storage.layout import Claim
from seb_appliance.storage.recovery.opening_followed import CONTESTED_S, open_followed
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliances import Appliance
from tests.support.faulty_store import (
    CrashError,
    FaultyStore,
    after,
    crash,
    flipped_bit,
    unavailable,
)

JOURNAL, CLAIMS, BASES = layout.JOURNAL, layout.CLAIMS, layout.BASES
SAFE = {"get", "get_range", "head", "list_after"}


@pytest.fixture(params=["A", "B"])
def mode(request):
    return request.param


@pytest.fixture
def store(mode):
    return FaultyStore(MemoryStore(), creates="only if absent" if mode == "A" else "501")


@pytest.fixture
async def writer(store, tmp_path):
    """An appliance with the numbers 1 to 5."""
    appliance = await Appliance(store, tmp_path / "writer").start()
    for number in range(1, 6):
        await appliance.append(number)
    return appliance


class Standby(Appliance):
    """An appliance that follows; `replica` is what it has read."""

    async def open(self):
        opened = await open_followed(
            self.store,
            self.replica,
            self.data_dir,
            clock=self.clock,
            jitter=random.Random(1).random,
            progress=lambda *_: None,
        )
        if opened is None:
            return None
        self.journal, self.report = opened
        return self

    async def read(self):
        """Once; how many entries came."""
        entries = await self.journal.read()
        await self.replica.apply(entries)
        return len(entries)

    async def catch_up(self):
        while await self.read():
            pass
        return self.replica.numbers


@pytest.fixture
async def standby(store, writer, tmp_path):
    found = await Standby(store, tmp_path / "standby").open()
    await found.catch_up()
    store.requests.clear()
    return found


async def append_and_snapshot(appliance, numbers):
    for number in numbers:
        await appliance.append(number)
        await appliance.snapshot()


async def delete_up_to_the_floor(store, appliance):
    """What a tidier does that has merged them all; epoch entries stay."""
    floor = await appliance.snapshots().floor()
    for info in await store.inner.list_after(JOURNAL, "", 1000):
        _, seq = layout.parse_entry(info.key)
        if seq <= floor and (info.key.count("/") > 2 or seq > 1):
            await store.inner.delete(info.key)
    return floor


async def test_it_begins_at_the_end_and_reads_what_comes(standby, writer):
    assert standby.replica.numbers == [1, 2, 3, 4, 5]
    await writer.append(6)
    assert await standby.catch_up() == [1, 2, 3, 4, 5, 6]
    assert standby.journal.position == writer.journal.position


async def test_nothing_is_ever_written_to_the_bucket(store, writer, tmp_path):
    store.requests.clear()
    standby = await Standby(store, tmp_path / "standby").open()
    assert await standby.catch_up() == [1, 2, 3, 4, 5]
    assert {method for method, _ in store.requests} <= SAFE


async def test_a_bucket_that_is_away_for_minutes_is_waited_for(store, standby, writer):
    await writer.append(6)
    began_s = standby.clock.monotonic_s()
    for method in ("get_range", "list_after"):
        store.on(method, "", unavailable, times=200)
    assert await standby.catch_up() == [1, 2, 3, 4, 5, 6]
    assert standby.clock.monotonic_s() - began_s > START_PATIENCE_S


async def test_an_append_is_refused(standby, writer):
    encoded = writer.journal.encoder(0)(Contents([], []), [])
    with pytest.raises(StandbyError):
        standby.journal.encoder(0)
    with pytest.raises(StandbyError) as told:
        await standby.journal.append(encoded)
    assert (told.value.retryable, told.value.side_effects) == (False, "none")


async def test_while_nothing_comes_each_look_is_one_get_and_no_list(store, standby):
    for _ in range(5):
        assert await standby.read() == 0
    assert [method for method, _ in store.requests] == ["get_range"] * 5


async def test_now_and_then_a_list_tells_what_a_get_does_not(store, standby, mode):
    standby.clock.now_s += BASES_S
    await standby.read()
    assert store.count("list_after", BASES) == (mode == "B")
    assert store.count("list_after", layout.SNAPSHOTS) == 0
    standby.clock.now_s += FLOOR_S
    await standby.read()
    assert store.count("list_after", layout.SNAPSHOTS) == 1


async def test_an_entry_costs_two_gets_and_many_are_read_at_once(store, standby, writer, mode):
    await writer.append(6)
    store.requests.clear()
    await standby.catch_up()
    assert store.count("get_range") == 2
    for number in range(7, 107):
        await writer.append(number)
    rounds = 0
    while await standby.read():
        rounds += 1
    assert rounds <= 10
    assert standby.replica.numbers[-1] == 106


async def test_the_end_is_seen_when_there_is_nothing_more(standby, writer):
    seen_s = standby.journal.seen_end_s
    assert seen_s is not None
    await writer.append(6)
    standby.clock.now_s += 3
    assert await standby.read() == 1
    assert standby.journal.seen_end_s == seen_s


async def test_an_entry_behind_one_that_is_absent_is_not_taken(store, standby, writer):
    for number in (6, 7, 8):
        await writer.append(number)
    assert await standby.read() == 1
    assert await standby.read() == 1  # one in a row is asked for, then two
    position = writer.journal.position
    for number in (9, 10):
        await writer.append(number)
    key = next(
        k for m, k in store.requests if m in ("put", "create") and f"{position.seq + 1:020d}" in k
    )
    body = await store.inner.get(key)
    await store.inner.delete(key)
    await standby.catch_up()
    assert standby.replica.numbers[-1] == 8
    await store.inner.put(key, body)
    assert (await standby.catch_up())[-1] == 10


async def test_a_writer_that_takes_over_is_followed(store, standby, writer, tmp_path):
    await writer.append(6)
    other = await Appliance(store, tmp_path / "other").start(take_over=True)
    await other.append(7)
    with pytest.raises(FencedError):
        await writer.append(8)
    standby.clock.now_s += FLOOR_S
    assert await standby.catch_up() == [1, 2, 3, 4, 5, 6, 7]
    assert standby.journal.epoch == other.journal.epoch
    assert standby.journal.writer_id == other.journal.writer_id


async def test_what_was_deleted_before_it_was_read_is_noticed_and_a_snapshot_begun_from(
    store, standby, writer
):
    await append_and_snapshot(writer, range(6, 12))
    await delete_up_to_the_floor(store, writer)
    standby.clock.now_s += FLOOR_S
    with pytest.raises(ReplayError, match="may be gone"):
        await standby.catch_up()
    again = await standby.open()
    assert again.report.began_from.startswith(layout.SNAPSHOTS)
    assert await again.catch_up() == list(range(1, 12))


async def test_after_a_pause_it_looks_before_it_says_that_it_is_at_the_end(
    store, standby, writer, mode
):
    await append_and_snapshot(writer, range(6, 12))
    await delete_up_to_the_floor(store, writer)
    wall_us = standby.clock.wall_us()
    standby.clock.wall_us = lambda: wall_us + 3_600_000_000  # the monotonic clock stood still
    with pytest.raises(ReplayError):
        await standby.read()


async def test_a_damaged_entry_is_read_again_and_then_no_further(store, standby, writer):
    await writer.append(6)
    store.on("get_range", JOURNAL, flipped_bit)
    assert await standby.catch_up() == [1, 2, 3, 4, 5, 6]
    await writer.append(7)
    store.on("get_range", JOURNAL, flipped_bit, times=9)
    with pytest.raises(ReplayError, match="damaged"):
        await standby.read()


async def test_while_the_store_fails_it_asks_again(store, standby, writer):
    await writer.append(6)
    store.on("get_range", JOURNAL, unavailable, times=5)
    assert await standby.catch_up() == [1, 2, 3, 4, 5, 6]
    assert standby.journal.health.failing_since_s is None


async def test_where_no_appliance_has_written_there_is_nothing_to_follow(store, tmp_path):
    with pytest.raises(ConfigurationError, match="is not the bucket of an appliance"):
        await Standby(store, tmp_path / "standby").open()
    assert {method for method, _ in store.requests} <= SAFE


async def test_the_data_directory_that_wrote_last_has_nobody_to_follow(store, writer, tmp_path):
    same = Standby(store, tmp_path / "writer")
    assert await same.open() is None
    other = await Appliance(store, tmp_path / "other").start(take_over=True)
    assert other.journal.epoch > writer.journal.epoch
    assert await Standby(store, tmp_path / "writer").open() is not None


@pytest.mark.parametrize("mode", ["A"], indirect=True)
async def test_a_ghost_that_a_slow_start_left_at_a_deleted_key_is_not_followed(
    store, standby, writer, tmp_path
):
    async def time_passes():
        await append_and_snapshot(writer, range(6, 12))
        await delete_up_to_the_floor(store, writer)
        store.on("list_after", layout.SNAPSHOTS, crash)

    slow = Appliance(store, tmp_path / "slow")
    ghost = layout.create_only_key(standby.journal.position.seq + 1)
    # The slow start has seen the end of the log; it dies when its epoch entry is stored.
    store.on("list_after", JOURNAL, after(time_passes), skip=1)
    with pytest.raises(CrashError):
        await slow.start(take_over=True)
    assert read_header(await store.inner.get(ghost)).is_epoch
    with pytest.raises(ReplayError, match="may be gone"):
        await standby.catch_up()
    assert standby.replica.numbers == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["B"], indirect=True)
class TestClaims:
    async def claim(self, store, writer, n):
        claim = Claim(n, b"\xaa" * 16)
        await store.inner.put(layout.claim_key(claim), b"{}")
        return claim

    async def test_an_entry_is_taken_only_while_no_claim_is_above_its_writer(
        self, store, standby, writer
    ):
        claim = await self.claim(store, writer, 2)
        key = layout.claimed_key(Claim(1, writer.journal.writer_id), 6)
        store.on("list_after", CLAIMS, crash)
        with pytest.raises(CrashError):  # stored, and not checked by its writer
            await writer.append(6)
        assert key in {info.key for info in await store.inner.list_after(JOURNAL, "", 1000)}
        assert await standby.catch_up() == [1, 2, 3, 4, 5]
        assert await standby.catch_up() == [1, 2, 3, 4, 5]
        assert "epoch 2" in standby.journal.waits_for
        await store.inner.delete(layout.claim_key(claim))
        standby.clock.now_s += BASES_S
        assert await standby.catch_up() == [1, 2, 3, 4, 5, 6]
        assert standby.journal.waits_for == ""

    async def test_while_it_waits_for_a_claim_it_does_not_list_at_each_look(
        self, store, standby, writer
    ):
        await self.claim(store, writer, 2)
        store.on("list_after", CLAIMS, crash)
        with pytest.raises(CrashError):
            await writer.append(6)
        await standby.read()
        await standby.read()
        store.requests.clear()
        for _ in range(5):
            await standby.read()
        assert store.requests == []

    async def test_a_new_writer_is_looked_for_at_once_when_its_claim_is_seen(
        self, store, standby, writer, tmp_path
    ):
        await writer.append(6)
        other = await Appliance(store, tmp_path / "other").start(take_over=True)
        await other.append(7)
        assert await standby.read() == 0  # entry 6, with a claim above it
        assert await standby.catch_up() == [1, 2, 3, 4, 5, 6, 7]

    async def test_a_start_waits_until_it_is_settled_who_writes(self, store, writer, tmp_path):
        claim = await self.claim(store, writer, 2)
        standby = Standby(store, tmp_path / "standby")
        with pytest.raises(StartError, match="--take-over"):
            await standby.open()
        assert sum(standby.clock.slept_s) >= CONTESTED_S
        await store.inner.delete(layout.claim_key(claim))
        assert await (await standby.open()).catch_up() == [1, 2, 3, 4, 5]

    async def test_what_a_base_names_counts_only_if_its_writer_came_into_force(
        self, store, standby, writer
    ):
        of_writer = Claim(1, writer.journal.writer_id)
        bucket_id, cut = writer.journal.bucket_id, writer.journal.position
        slow, winner = Claim(2, b"\xaa" * 16), Claim(3, b"\xbb" * 16)
        for claim in (slow, winner):
            await store.inner.put(layout.claim_key(claim), b"{}")
        store.on("list_after", CLAIMS, crash)
        with pytest.raises(CrashError):  # it lands when the winner has read the log already
            await writer.append(6)
        late = read_header(await store.inner.get(layout.claimed_key(of_writer, 6)))
        base = make_base(slow, of_writer, late.position, bucket_id)
        await store.inner.put(layout.base_key(slow), encode_base(base))
        standby.clock.now_s += BASES_S
        assert await standby.catch_up() == [1, 2, 3, 4, 5]
        base = make_base(winner, of_writer, cut, bucket_id)
        await store.inner.put(layout.base_key(winner), encode_base(base))
        entry = encode(
            Contents([TopicDeleted(topic_id=60)], []),
            [],
            after=cut,
            epoch=winner.n,
            writer_id=winner.writer_id,
            entry_id=b"e" * 16,
            bucket_id=bucket_id,
            created_us=cut.created_us,
        )
        await store.inner.put(layout.claimed_key(winner, 6), entry.body)
        standby.clock.now_s += BASES_S
        assert await standby.catch_up() == [1, 2, 3, 4, 5, 60]

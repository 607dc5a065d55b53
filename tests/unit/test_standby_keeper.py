"""A standby's loop on a clock of our own: when it looks, and when it does not."""

import random
from types import SimpleNamespace

import pytest

from seb_appliance.ops.jobs.standby_job import StandbyKeeper
from seb_appliance.storage.journal.replay import ReplayError
from seb_appliance.storage.recovery.opening_followed import open_followed
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliances import Appliance, ListReplica
from tests.support.fakes import FakeClock, settle
from tests.support.faulty_store import FaultyStore, flipped_bit

POLL_MS = 1_000


class Broker:
    """What the keeper asks of one."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.epochs: list[int] = []
        self.tidying = self

    async def measure(self) -> None: ...

    def stand_by(self, refusal) -> None:
        self.epochs.append(refusal.data["epoch"])

    async def replicate(self, entry) -> None:
        self.seqs.append(entry.header.seq)


class State(SimpleNamespace):
    """SQLite: how far it is behind."""

    is_far_behind = False

    async def drain(self) -> None: ...


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture
async def writer(store, tmp_path):
    return await Appliance(store, tmp_path / "writer").start()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def keeper(store, writer, clock, tmp_path):
    opened = await open_followed(
        store,
        ListReplica(),
        tmp_path,
        clock=clock,
        jitter=random.Random(1).random,
        progress=lambda *_: None,
    )
    assert opened is not None
    made = StandbyKeeper(Broker(), opened[0], State(), clock, POLL_MS)
    made.start()
    await settle()
    store.requests.clear()
    yield made
    await made.close()


async def test_while_nothing_comes_it_looks_once_in_each_poll(store, keeper, clock):
    await clock.advance(5.0)
    assert store.requests == [("get_range", "_seb/journal/00000000000000000002.seb")] * 5


async def test_what_came_is_put_in_force_without_a_pause(writer, keeper, clock):
    for number in range(100):
        await writer.append(number)
    await clock.advance(1.0)
    for _ in range(50):
        await settle()
    assert keeper._broker.seqs == list(range(2, 102))
    assert (keeper.lag_entries, keeper.lag_s, keeper.applied) == (0, 0.0, 100)
    assert keeper.seen_end_age_s == 0.0


async def test_it_tells_how_long_ago_it_was_at_the_end(keeper, clock):
    await clock.advance(0.75)
    assert keeper.seen_end_age_s == 0.75


async def test_entries_that_a_snapshot_tells_of_are_a_lag(writer, keeper, clock):
    for number in range(3):
        await writer.append(number)
    await writer.snapshot()
    keeper._state.is_far_behind = True  # so it does not read on
    await keeper.journal._require_above_floor()
    assert keeper.lag_entries == 3


async def test_while_sqlite_is_far_behind_nothing_is_read(store, keeper, clock):
    keeper._state.is_far_behind = True
    await clock.advance(1.0)
    store.requests.clear()
    await clock.advance(5.0)
    assert store.requests == []
    keeper._state.is_far_behind = False
    await clock.advance(1.0)
    assert store.requests


async def test_refusals_name_the_writer_of_now(store, writer, keeper, clock, tmp_path):
    assert keeper._broker.epochs == [1]
    await Appliance(store, tmp_path / "other").start(take_over=True)
    await clock.advance(1.0)
    assert keeper._broker.epochs == [1, 2]


async def test_it_ends_when_the_journal_cannot_be_followed(store, writer, keeper, clock):
    await writer.append(1)
    store.on("get_range", "journal/", flipped_bit, times=9)
    await clock.advance(1.0)
    with pytest.raises(ReplayError):
        await keeper._task

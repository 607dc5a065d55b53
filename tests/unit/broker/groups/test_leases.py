"""Leases: one consumer of a group at a time, and a zombie that can do no harm."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.broker.groups.groups import LeaseView
from seb_appliance.broker.ports import LeaseRow, LoadedState
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.values import From
from seb_appliance.errors import BadNameError, BadRequestError, LeaseHeldError, StaleGenerationError
from seb_appliance.formats.entry import ORIGIN
from tests.support.fakes import FakeClock, FakeJournal, FakeKeyIndex, FakeSource, FakeState, settle
from tests.unit.broker.conftest import House


async def take(house: House, holder: str = "a", ttl_ms: int = 10_000) -> LeaseView:
    return await house.done(house.broker.groups.take_lease("g", holder, ttl_ms))


def taking(house: House, holder: str, ttl_ms: int = 10_000) -> asyncio.Task[LeaseView]:
    return asyncio.ensure_future(house.broker.groups.take_lease("g", holder, ttl_ms))


@pytest.fixture
async def t(house: House) -> None:
    """A topic with ten records."""
    await house.appended("t", *(b"x" for _ in range(10)))


@pytest.mark.usefixtures("t")
async def test_a_commit_with_the_generation_is_taken_while_the_lease_lives(house: House) -> None:
    lease = await take(house)
    assert lease.generation == house.journal.position.seq
    assert (lease.holder, lease.ttl_ms) == ("a", 10_000)
    await house.commit("g", {"t": 1}, generation=lease.generation)


@pytest.mark.usefixtures("t")
@pytest.mark.parametrize("off_by", [None, -1, 1])
async def test_a_commit_without_that_generation_is_refused_while_the_lease_lives(
    house: House, off_by: int | None
) -> None:
    lease = await take(house)
    generation = None if off_by is None else lease.generation + off_by
    with pytest.raises(StaleGenerationError) as caught:
        await house.commit("g", {"t": 1}, generation=generation)
    assert caught.value.data == {"holder": "a"}
    assert (await house.broker.groups.describe("g", lambda *_: True, everybody)).topics == []


@pytest.mark.usefixtures("t")
async def test_a_generation_is_refused_when_no_lease_is_alive(house: House) -> None:
    with pytest.raises(StaleGenerationError):
        await house.commit("g", {"t": 1}, generation=1)


async def test_a_lease_of_somebody_else_is_refused_while_it_lives(house: House) -> None:
    await take(house)
    with pytest.raises(LeaseHeldError) as caught:
        await take(house, "b")
    assert caught.value.data["holder"] == "a"
    assert 9_000 <= caught.value.data["expires_in_ms"] <= 9_010  # a second and linger have passed


@pytest.mark.usefixtures("t")
async def test_a_lease_ends_with_its_time(house: House) -> None:
    lease = await take(house)
    await house.clock.advance(8.98)
    await house.commit("g", {"t": 1}, generation=lease.generation)
    await house.clock.advance(1)
    assert (await house.broker.groups.describe("g", lambda *_: True, everybody)).lease is None
    with pytest.raises(StaleGenerationError):
        await house.commit("g", {"t": 2}, generation=lease.generation)
    await house.commit("g", {"t": 2})


@pytest.mark.usefixtures("t")
async def test_a_zombie_cannot_commit_after_another_took_over(house: House) -> None:
    old = await take(house, "a", 1_000)
    await house.clock.advance(2)
    new = await take(house, "b")
    assert new.generation > old.generation
    with pytest.raises(StaleGenerationError):
        await house.commit("g", {"t": 1}, generation=old.generation)
    with pytest.raises(StaleGenerationError):
        await house.commit("g", {"t": 1}, generation=old.generation, allow_backward=True)
    await house.commit("g", {"t": 5}, generation=new.generation)


async def test_renewing_keeps_the_generation_and_writes_nothing(house: House) -> None:
    first = await take(house)
    entries = len(house.journal.entries)
    await house.clock.advance(8)
    again = await house.broker.groups.take_lease("g", "a", 10_000)
    assert (again.generation, again.expires_in_ms) == (first.generation, 10_000)
    await house.clock.advance(8)
    with pytest.raises(LeaseHeldError):
        await take(house, "b")
    assert len(house.journal.entries) == entries


async def test_renewing_for_a_shorter_time_ends_it_sooner(house: House) -> None:
    await take(house)
    await house.broker.groups.take_lease("g", "a", 1_000)
    await house.clock.advance(1)
    assert (await take(house, "b")).holder == "b"


async def test_renewing_for_a_longer_time_is_a_new_generation(house: House) -> None:
    """What is written is what a restart grants again."""
    first = await take(house)
    longer = await take(house, "a", 60_000)
    assert longer.generation == house.journal.position.seq > first.generation


async def test_a_lease_that_ended_is_granted_anew_to_the_same_holder(house: House) -> None:
    first = await take(house, "a", 1_000)
    await house.clock.advance(1)
    assert (await take(house, "a", 1_000)).generation > first.generation


@pytest.mark.usefixtures("t")
async def test_a_lease_that_was_given_back_is_free(house: House) -> None:
    lease = await take(house)
    await house.done(house.broker.groups.release_lease("g", lease.generation))
    with pytest.raises(StaleGenerationError):
        await house.broker.groups.release_lease("g", lease.generation)
    await house.commit("g", {"t": 1})
    assert (await take(house, "b")).holder == "b"


async def test_only_its_generation_gives_a_lease_back(house: House) -> None:
    lease = await take(house)
    with pytest.raises(StaleGenerationError):
        await house.broker.groups.release_lease("g", lease.generation + 1)
    with pytest.raises(LeaseHeldError):
        await take(house, "b")


async def test_giving_back_a_lease_leaves_no_empty_group(house: House) -> None:
    lease = await take(house)
    await house.done(house.broker.groups.release_lease("g", lease.generation))
    assert await house.broker.groups.page("", 9, lambda *_: True, everybody) == ([], None)


# --- leases that are not stored yet ---


async def test_a_lease_that_waits_for_the_bucket_is_held_already(house: House) -> None:
    house.journal.hold()
    first, second = taking(house, "a"), taking(house, "b")
    await house.clock.advance(1)
    assert not second.done()
    house.journal.release()
    await house.clock.advance(1)
    assert (await first).holder == "a"
    with pytest.raises(LeaseHeldError):
        await second


async def test_a_lease_does_not_expire_before_it_is_stored(house: House) -> None:
    """Two holders in one entry would have the same generation."""
    house.journal.hold()
    other = asyncio.ensure_future(house.broker.groups.take_lease("other", "x", 1_000))
    await house.clock.advance(1)
    first = taking(house, "a", 1_000)
    await house.clock.advance(5)
    second = taking(house, "b", 1_000)
    await settle()
    house.journal.release()
    await house.clock.advance(0.5)
    lease = await first
    assert (lease.holder, lease.generation) == ("a", house.journal.position.seq)
    with pytest.raises(LeaseHeldError):
        await second
    await other


@pytest.mark.usefixtures("t")
async def test_a_commit_without_a_generation_behind_a_waiting_lease_is_refused_with_it(
    house: House,
) -> None:
    house.journal.hold()
    lease = taking(house, "a")
    await settle()
    commit = house.committing("g", {"t": 1})
    await house.clock.advance(1)
    assert not commit.done()
    house.journal.release()
    await house.clock.advance(1)
    await lease
    with pytest.raises(StaleGenerationError):
        await commit


@pytest.mark.usefixtures("t")
async def test_a_granted_generation_holds_while_later_changes_of_the_group_wait(
    house: House,
) -> None:
    first = taking(house, "a")
    await house.clock.advance(0.01)
    house.journal.hold()
    lease = await first
    commits = [house.committing("g", {"t": n}, generation=lease.generation) for n in (1, 2)]
    await house.clock.advance(1)
    third = house.committing("g", {"t": 3}, generation=lease.generation)
    await settle()
    house.journal.release()
    await house.clock.advance(1)
    await asyncio.gather(*commits, third)


@pytest.mark.usefixtures("t")
async def test_a_generation_is_valid_from_the_answer_on_though_a_reset_waits(
    house: House,
) -> None:
    house.journal.hold()
    first = taking(house, "a")
    await house.clock.advance(1)
    rows = await house.broker.groups.plan_reset("g", ["t"], From(offset=5), 0)
    later = asyncio.ensure_future(house.broker.groups.reset("g", rows))
    await settle()
    house.journal.release()
    await settle()
    house.journal.hold()
    lease = await first
    commit = house.committing("g", {"t": 6}, generation=lease.generation)
    await settle()
    assert not commit.done()
    house.journal.release()
    await house.clock.advance(1)
    await asyncio.gather(later, commit)


async def test_a_lease_that_a_deletion_takes_away_in_its_own_entry_is_not_granted(
    house: House,
) -> None:
    first = taking(house, "a")
    await settle()
    deleting = asyncio.ensure_future(house.broker.groups.delete("g"))
    await settle()
    second = taking(house, "b")
    await house.clock.advance(1)
    await deleting
    with pytest.raises(LeaseHeldError):
        await first
    assert (await second).holder == "b"


# --- restarts and bad input ---


async def test_a_restart_grants_the_full_time_again() -> None:
    clock = FakeClock()
    loaded = LoadedState(ORIGIN, leases=[LeaseRow("g", 7, "a", 10_000)])
    with ThreadPoolExecutor(1) as executor:
        broker = Broker(
            loaded,
            FakeJournal(clock),
            FakeSource(),
            FakeState(),
            BrokerSettings(linger_ms=10),
            FakeKeyIndex(),
            clock=clock,
            executor=executor,
            random_bytes=lambda n: b"\x07" * n,
        )
        view = await broker.groups.describe("g", lambda *_: True, everybody)
        assert view.lease == LeaseView(7, "a", 10_000, 10_000)
        with pytest.raises(LeaseHeldError):
            await broker.groups.take_lease("g", "b", 10_000)
        await clock.advance(9.999)
        assert (await broker.groups.describe("g", lambda *_: True, everybody)).lease is not None
        await clock.advance(0.001)
        assert (await broker.groups.describe("g", lambda *_: True, everybody)).lease is None


@pytest.mark.parametrize("ttl_ms", [0, limits.LEASE_TTL_MS_MIN - 1, limits.LEASE_TTL_MS_MAX + 1])
async def test_a_lease_for_no_time_or_for_ever_is_refused(house: House, ttl_ms: int) -> None:
    with pytest.raises(BadRequestError):
        await house.broker.groups.take_lease("g", "a", ttl_ms)


async def test_a_lease_needs_a_holder_and_a_group_with_a_name(house: House) -> None:
    for holder in ("", "x" * 129):
        with pytest.raises(BadRequestError):
            await house.broker.groups.take_lease("g", holder, 1_000)
    with pytest.raises(BadNameError):
        await house.broker.groups.take_lease("a..b", "a", 1_000)

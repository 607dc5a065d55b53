"""Many who wait are woken a few at a time, and those of one owner do not delay the others."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import limits
from seb_appliance.broker.callbacks import Turns
from seb_appliance.broker.read.waiting import Followers
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.values import From, ReadRequest
from tests.support.fakes import FakeClock, settle
from tests.unit.broker.conftest import House

MANY = 500


async def turns_of(told: list[str], turns: int) -> list[int]:
    """How many are told in each of so many turns of the loop."""
    counts = []
    for _ in range(turns):
        before = len(told)
        await asyncio.sleep(0)
        counts.append(len(told) - before)
    return counts


async def test_calls_are_spread_over_turns_of_the_loop_and_owners_alternate() -> None:
    turns, told = Turns(), []
    for _ in range(MANY):
        turns.add("greedy", lambda: told.append("greedy"))
    turns.add("modest", lambda: told.append("modest"))
    counts = await turns_of(told, MANY)
    assert max(counts) == limits.WAKES_PER_TURN
    assert told.index("modest") == 1
    assert len(told) == MANY + 1


async def test_a_call_that_raises_delays_nobody(house: House) -> None:
    turns, told = Turns(), []
    caught = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: caught.append(found))

    def broken() -> None:
        raise ValueError("a bug")

    turns.add("a", broken)
    turns.add("b", lambda: told.append("b"))
    await settle()
    assert (told, len(caught)) == (["b"], 1)


async def test_one_append_wakes_many_readers_in_slices(house: House) -> None:
    await house.topic("t")
    told: list[str] = []
    for n in range(MANY):
        owner = "modest" if n == MANY - 1 else "greedy"
        house.broker.wait_at_end("t", 0, 60, owner, lambda owner=owner: told.append(owner))
    broker = house.broker
    broker._waiting.wake([broker._catalog.topic("t")])
    counts = await turns_of(told, MANY)
    assert (len(told), max(counts)) == (MANY, limits.WAKES_PER_TURN)
    assert told.index("modest") <= limits.WAKES_PER_TURN
    assert broker.waiting_readers == 0


async def test_a_waiting_reader_takes_a_place_of_its_key(house: House) -> None:
    await house.topic("t")
    house.broker._waiting.shares.limit = 4
    for _ in range(2):
        house.broker.wait_at_end("t", 0, 60, "greedy", lambda: None)
    asked = ReadRequest(From(offset=0), wait_ms=60_000, owner="greedy")
    with pytest.raises(Exception, match="This API key uses 2 of 4 waiting readers"):
        await house.broker.read("t", asked)
    assert house.broker.wait_at_end("t", 0, 60, "modest", lambda: None) is not None


async def test_one_append_wakes_many_followers_in_slices(house: House) -> None:
    await house.topic("t")
    topic = house.broker._catalog.topic("t")
    followers, told = Followers(FakeClock(), AllShares()), []

    async def following(owner: str) -> None:
        with followers.follow(topic, owner) as follower:
            await follower.wait()
            told.append(owner)

    tasks = [asyncio.create_task(following("greedy")) for _ in range(MANY)]
    tasks.append(asyncio.create_task(following("modest")))
    await settle()
    followers.wake([topic])
    followers.wake([topic])
    counts = await turns_of(told, MANY)
    assert (len(told), max(counts)) == (MANY + 1, limits.WAKES_PER_TURN)
    assert told.index("modest") <= limits.WAKES_PER_TURN
    await asyncio.gather(*tasks)

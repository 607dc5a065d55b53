"""What a queue holds of a topic is gone at once when the topic is deleted, however much it is."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from seb_appliance import tasks
from tests.support.fakes import settle
from tests.support.yardstick import at_this_speed
from tests.unit.broker.queues.conftest import Work, values

LONGEST_S = 0.005
MANY = 100_000


async def test_a_deleted_topic_is_forgotten_at_once_and_others_go_on(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SLICE_S", 0.0)  # one record in each turn
    await work.house.appended("t", b"a", b"b", b"c")
    await work.house.appended("u", b"x", b"y")
    await work.put("t", "u", lease_ms=10_000)
    assert len(await work.take()) == 5
    (live,) = work.queues.live()
    seen = []

    async def look_in_each_turn() -> None:
        while True:
            seen.append((len(live.topics), len(live.deliveries.out)))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look_in_each_turn())
    await work.house.done(work.house.broker.topics.delete("t"))
    await settle()
    looking.cancel()
    assert set(seen) == {(2, 5), (1, 2)}  # nothing in between
    await work.house.clock.advance(11)
    assert sorted(values(await work.take())) == [b"x", b"y"]
    assert {event.topic_id for event in work.events()} == {2}  # of t no lease has ended


async def test_a_deleted_topic_leaves_no_timer(work: Work) -> None:
    await work.house.appended("t", b"a", b"b")
    await work.put("t", ordering="key")
    first, _ = await work.take()
    await work.retry(first, delay_ms=5_000)
    (live,) = work.queues.live()
    assert live.deliveries.next_s is not None
    await work.house.done(work.house.broker.topics.delete("t"))
    await settle()
    assert live.deliveries.next_s is None


@contextlib.asynccontextmanager
async def longest_turn() -> AsyncIterator[list[float]]:
    """CPU seconds of this thread in each turn of the loop; the longest is the last of the list."""
    turns = [0.0]

    async def measure() -> None:
        before_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            turns.append(max(turns[-1], now_s - before_s))
            before_s = now_s

    measuring = asyncio.create_task(measure())
    await asyncio.sleep(0)
    yield turns
    await asyncio.sleep(0)
    measuring.cancel()


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("what", ["topic", "queue"])
async def test_forgetting_many_records_holds_the_loop_no_longer_than_other_work(
    work: Work, what: str
) -> None:
    for _ in range(MANY // 10_000):
        await work.house.appended("t", *[b"x"] * 10_000)
    await work.put("t", max_in_flight=MANY, lease_ms=600_000)
    left = MANY
    while left:
        left -= sum(len(one.deliveries) for one in await work.taking(left))
    (live,) = work.queues.live()
    async with longest_turn() as turns:
        if what == "topic":
            await work.house.done(work.house.broker.topics.delete("t"))
        else:
            await work.house.done(work.queues.delete("q"))
        while live.deliveries.next_s is not None:
            await asyncio.sleep(0)
    print(f"{what}: {turns[-1] * 1_000:.1f} ms in {len(turns)} turns")
    assert turns[-1] <= at_this_speed(LONGEST_S)

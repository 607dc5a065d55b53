"""Takers of a queue wait, are woken and leave; what they are told is stored."""

from __future__ import annotations

import asyncio
import time

import pytest

from seb_appliance import limits, tasks
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.queues.takers import Takers
from seb_appliance.broker.shares import OPERATOR, Shares
from seb_appliance.errors import ShareExceededError
from seb_appliance.formats.queues.queues import QueueSettings
from tests.support.fakes import FakeClock, settle
from tests.unit.broker.queues.conftest import Work, values


async def test_a_taker_that_waits_gets_the_next_record_and_leaves_no_timer(work: Work):
    await work.house.topic("t")
    await work.put()
    armed = work.house.clock.armed
    first, second = work.taking(wait_ms=60_000), work.taking(wait_ms=60_000)
    await settle()
    assert (await work.view()).waiting_takers == 2
    await work.house.appended("t", b"a")
    await settle()
    assert values(work.told(await first)) == [b"a"]
    await work.house.appended("t", b"b")
    assert values(work.told(await second)) == [b"b"]
    assert work.house.clock.armed == armed + 1  # the end of the leases


async def test_a_taker_that_leaves_hands_its_turn_on(work: Work):
    await work.house.topic("t")
    await work.put()
    first, second = work.taking(wait_ms=60_000), work.taking(wait_ms=60_000)
    await settle()
    first.cancel()
    await work.house.appended("t", b"a")
    assert values(work.told(await second)) == [b"a"]


async def test_an_empty_take_waits_for_its_time_and_stores_nothing(work: Work):
    await work.house.topic("t")
    await work.put()
    stored = work.house.journal.position.seq
    taking = work.taking(wait_ms=5_000)
    await work.house.clock.advance(4.9)
    assert not taking.done()
    await work.house.clock.advance(0.2)
    assert await taking == []
    assert work.house.journal.position.seq == stored


async def test_acknowledgements_of_one_window_are_one_event_of_ranges(work: Work):
    await work.house.appended("t", *[b"v"] * 10)
    await work.put()
    taken = await work.take()
    acks = [
        asyncio.ensure_future(work.queues.ack("q", [one.token], OPERATOR))
        for one in (taken[1], taken[0], taken[2], taken[7])
    ]
    await work.house.clock.advance(1)
    assert [await ack for ack in acks] == [["ok"]] * 4
    (event,) = work.events()
    assert [(one.begin, one.end) for one in event.acked] == [(1, 2), (0, 1), (2, 3), (7, 8)]


async def test_no_more_records_are_out_than_the_queue_allows(work: Work):
    await work.house.appended("t", b"a", b"b", b"c")
    await work.put(max_in_flight=2)
    taken = await work.take()
    assert values(taken) == [b"a", b"b"]
    waiting = work.taking(wait_ms=60_000)
    await settle()
    assert not waiting.done()
    await work.ack(taken[0])
    assert values(work.told(await waiting)) == [b"c"]


async def test_settled_deliveries_give_their_shares_back(work: Work):
    shares = next(one for one in work.house.broker.shares if one.name == "deliveries")
    await work.house.appended("t", b"a", b"b")
    await work.put()
    taken = await work.take()
    assert shares.used == 2
    await work.ack(*taken)
    assert shares.used == 0


async def test_a_queue_with_too_much_put_aside_reads_no_further(
    work: Work, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "QUEUE_ASIDE_MAX", 2)
    await work.house.appended("t", b"a", b"b", b"c")
    await work.put()
    taken = await work.take(2)
    await work.retry(*taken, delay_ms=60_000)
    assert await work.take() == []
    await work.house.clock.advance(61)
    assert values(await work.take()) == [b"a", b"b", b"c"]


async def test_records_of_a_take_that_could_not_be_answered_go_to_others_uncounted(work: Work):
    await work.house.appended("t", b"a", b"b")
    await work.put()
    lost = await work.taking()
    waiting = work.taking(wait_ms=60_000)
    await settle()
    work.queues.undo("q", lost)
    assert [(one.value, one.attempt) for one in work.told(await waiting)] == [(b"a", 1), (b"b", 1)]
    assert await work.ack(*work.told(lost)) == ["lease_ended", "lease_ended"]


async def test_an_acknowledgement_wakes_nobody_while_there_is_nothing_to_take(work: Work):
    await work.house.appended("t", b"a")
    await work.put()
    taken = await work.take()
    waiting = work.taking(wait_ms=60_000)
    await settle()
    (woken,) = work.queues._live["q"].takers._waiting
    await work.ack(*taken)
    assert list(work.queues._live["q"].takers._waiting) == [woken]
    waiting.cancel()


async def test_an_acknowledgement_is_answered_when_it_is_stored_and_so_is_its_repeat(work: Work):
    await work.house.appended("t", b"a")
    await work.put()
    (taken,) = await work.take()
    work.house.journal.hold()
    first = asyncio.ensure_future(work.queues.ack("q", [taken.token], OPERATOR))
    second = asyncio.ensure_future(work.queues.ack("q", [taken.token], OPERATOR))
    await work.house.clock.advance(0.1)
    assert not first.done()
    assert not second.done()
    work.house.journal.release()
    await work.house.clock.advance(0.1)
    assert (await first, await second) == (["ok"], ["settled"])


async def test_a_queue_that_was_changed_waits_for_what_is_on_its_way(work: Work):
    await work.house.appended("t", b"a", b"b")
    await work.put()
    a, _ = await work.take()
    work.house.journal.hold()
    acking = asyncio.ensure_future(work.queues.ack("q", [a.token], OPERATOR))
    settings = QueueSettings(topics=("t",), ordering="key")
    putting = asyncio.ensure_future(work.queues.put("q", settings))
    await work.house.clock.advance(0.1)
    taking = work.taking()
    await settle()
    assert not taking.done()  # it would hand out again what is being acknowledged
    work.house.journal.release()
    await work.house.clock.advance(1)
    assert await acking == ["ok"]
    await putting
    assert values(work.told(await taking)) == [b"b"]


async def test_several_records_that_come_at_once_wake_several_takers(work: Work):
    await work.house.topic("t")
    await work.put()
    waiting = [work.taking(most=1, wait_ms=60_000) for _ in range(3)]
    await settle()
    await work.house.appended("t", b"a", b"b", b"c")
    await settle()
    assert [values(work.told(await one)) for one in waiting] == [[b"a"], [b"b"], [b"c"]]


async def test_a_taker_that_leaves_as_it_is_woken_wakes_the_next(work: Work):
    await work.house.topic("t")
    await work.put()
    first, _ = work.taking(wait_ms=60_000), work.taking(wait_ms=60_000)
    await settle()
    live = work.queues._live["q"]
    _, second = live.takers._waiting
    live.wake()
    first.cancel()
    await settle()
    assert second.done()


async def test_others_have_turns_while_a_queue_looks_at_topics_without_new_records(
    work: Work, monkeypatch: pytest.MonkeyPatch
):
    await work.put("*")
    assert await work.take() == []
    for i in range(150):
        await work.house.topic(f"t{i}")
    await work.house.appended("last", b"a")
    await settle()
    monkeypatch.setattr(tasks, "SLICE_S", 0)
    taking, turns = work.taking(), 0
    while not taking.done():
        await asyncio.sleep(0)
        turns += 1
    assert values(work.told(await taking)) == [b"a"]
    assert turns > 150


async def test_topics_that_queues_of_one_api_key_read_leave_room_for_others(
    work: Work, monkeypatch: pytest.MonkeyPatch
):
    shares = next(one for one in work.house.broker.shares if one.name == "queue_topics")
    monkeypatch.setattr(shares, "limit", 12)
    for name in ("a", "b", "c"):
        await work.house.topic(name)

    async def take(queue: str, owner: str) -> None:
        settings = QueueSettings(topics=("*",))
        await work.house.done(work.queues.put(queue, settings, Actor("key", "", owner=owner)))
        assert await work.queues.take(queue, 1, 0, None, owner) == []

    await take("greedy-1", "greedy")
    await take("greedy-2", "greedy")
    with pytest.raises(ShareExceededError, match="topics that its queues read"):
        await take("greedy-3", "greedy")
    await take("good", "good")
    assert shares.held_by("good") == 3

    await work.house.topic("d")
    await settle()
    assert shares.held_by("greedy") == 4, "there is no room for the topic in both"
    await work.house.done(work.house.broker.topics.delete("a"))
    await settle()
    assert (shares.held_by("greedy"), shares.held_by("good")) == (3, 3)
    for queue in ("greedy-1", "greedy-2", "good"):
        await work.house.done(work.queues.delete(queue))
    assert shares.used == 0


async def test_failures_count_while_nobody_works_on_their_queue(
    work: Work, monkeypatch: pytest.MonkeyPatch
):
    shares = next(one for one in work.house.broker.shares if one.name == "deliveries")
    await work.house.appended("t", *[b"v"] * 10)

    async def fail(queue: str, count: int) -> list[str]:
        by = Actor("key", "", owner="greedy")
        settings = QueueSettings(topics=("t",))
        await work.house.done(work.queues.put(queue, settings, by))
        taken = work.told(await work.queues.take(queue, count, 0, None, "greedy"), queue)
        tokens = [one.token for one in taken]
        return await work.house.done(work.queues.retry(queue, tokens, 86_400_000, "greedy"))

    assert await fail("a", 10) == ["ok"] * 10
    work.queues._close(work.queues._live["a"])  # as a change of its topics does
    assert shares.held_by("greedy") == 10
    monkeypatch.setattr(shares, "limit", 25)
    assert await fail("b", 2) == ["ok"] * 2
    with pytest.raises(ShareExceededError):
        await work.queues.take("b", 5, 0, None, "greedy")

    assert await work.queues.extend("a", ["nobody's"], 1_000) == ["lease_ended"]
    assert shares.held_by("greedy") == 12, "at work, and none of them is met"
    await work.house.clock.advance(90_000)
    monkeypatch.setattr(shares, "limit", 12)
    (again,) = await work.queues.take("a", 1, 0, None, "greedy")
    assert again.deliveries[0].attempt == 2, "what has failed is no more than before"
    for queue in ("a", "b"):
        await work.house.done(work.queues.delete(queue))
    assert shares.used == 0


async def test_takers_leave_at_the_same_cost_in_any_order():
    takers = Takers(FakeClock(), Shares("waiters", 10_000, "waiters"), lambda: None)

    async def leaving_s(*, backwards: bool) -> float:
        tasks = [asyncio.ensure_future(takers.wait(60, "key")) for _ in range(5_000)]
        await settle()
        began_s = time.perf_counter()
        for task in reversed(tasks) if backwards else tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not takers
        return time.perf_counter() - began_s

    in_order_s = await leaving_s(backwards=False)
    assert await leaving_s(backwards=True) < 4 * in_order_s, "10 times, if they were searched for"

"""Delayed records: readers see them at once, queues hand them out when they are due."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import limits, tasks
from seb_appliance.broker.delays.delays import Delays
from seb_appliance.broker.ports import Span
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import Delayed, NewRecords
from seb_appliance.errors import DelayTooLongError, OverloadedError
from seb_appliance.formats.operations import DelaysPassed, RecordsDelayed
from seb_appliance.formats.queues.queues import QueueSettings
from tests.unit.broker.conftest import ADMIN
from tests.unit.broker.queues.conftest import Work, values


async def delayed(
    work: Work, *records: tuple[bytes, float], key: bytes | None = None, topic: str = "t"
) -> int:
    """Values and their delays in seconds; the first offset."""
    now_us = work.house.clock.wall_us()
    due = [Delayed(i, 1, now_us + int(s * 1e6)) for i, (_, s) in enumerate(records) if s]
    keys = None if key is None else [key] * len(records)
    columns = NewRecords([value for value, _ in records], keys, delayed=due)
    reservation = work.house.broker.pending.reserve(OPERATOR, 1)
    appends = work.house.broker.appends
    done = await work.house.done(appends.append(ADMIN, topic, columns, reservation, None))
    assert done.offset is not None
    return done.offset


async def test_a_delayed_record_is_handed_out_when_it_is_due_and_read_at_once(work: Work):
    await work.put()
    await delayed(work, (b"later", 60), (b"now", 0))
    assert await work.house.values("t") == [b"later", b"now"]
    await work.ack(*await work.take())
    taking = work.taking(wait_ms=600_000)
    await work.house.clock.advance(57)
    assert not taking.done()
    await work.house.clock.advance(1.5)
    assert values(work.told(await taking)) == [b"later"]
    assert await work.take() == []


async def test_records_that_are_due_at_one_time_go_to_many_takers(work: Work):
    await work.put()
    await delayed(work, *((b"%d" % i, 60) for i in range(10)))
    takers = [work.taking(3, wait_ms=600_000) for _ in range(4)]
    await work.house.clock.advance(59)
    found = [one for taker in takers for one in work.told(await taker)]
    assert sorted(one.offset for one in found) == list(range(10))
    assert await work.ack(*found) == ["ok"] * 10
    assert (await work.view()).topics[0].waiting == 0


async def test_a_delay_goes_on_after_a_restart_and_ends_in_time(work: Work):
    await work.put()
    await delayed(work, (b"a", 60), (b"b", 0), (b"c", 30))
    await work.ack(*await work.take())
    work.restart()
    assert await work.take() == []
    await work.house.clock.advance(29)
    (c,) = await work.take()
    assert c.value == b"c"
    await work.ack(c)
    work.restart()
    await work.house.clock.advance(100)
    assert values(await work.take()) == [b"a"]


async def test_a_delayed_record_does_not_hold_its_key_and_then_waits_its_turn(work: Work):
    await work.put(ordering="key")
    await delayed(work, (b"later", 20), (b"now", 0), key=b"k")
    (now,) = await work.take()
    assert now.value == b"now"
    await work.house.clock.advance(20)
    assert await work.take() == []
    await work.ack(now)
    assert values(await work.take()) == [b"later"]


async def test_a_delay_beyond_the_retention_or_a_year_is_refused(work: Work):
    await work.house.topic("t", retention_ms=60_000)
    with pytest.raises(DelayTooLongError, match="gone before it is due"):
        await delayed(work, (b"a", 61))
    await work.house.topic("long")
    await delayed(work, (b"a", 59))
    await work.house.done(work.house.broker.topics.delete("t"))
    with pytest.raises(DelayTooLongError, match="366 days"):
        await delayed(work, (b"a", 367 * 86_400))


async def test_a_time_that_has_passed_delays_nothing_and_is_not_told(work: Work):
    await work.put()
    await delayed(work, (b"a", -5))
    assert values(await work.take()) == [b"a"]
    operations = [o for e in work.house.journal.entries for o in e.entry.contents.operations]
    assert not any(isinstance(operation, RecordsDelayed) for operation in operations)


async def test_a_clock_that_is_set_back_repeats_nothing_and_hands_out_nothing_early(work: Work):
    await work.put()
    await delayed(work, (b"a", 100))
    await work.ack(*await work.take())
    work.house.clock.wall_offset_us += 200_000_000
    (a,) = await work.take()
    work.house.clock.wall_offset_us -= 200_000_000
    await delayed(work, (b"b", 50), (b"c", 0))
    (c,) = await work.take()
    assert c.value == b"c"
    assert await work.ack(a, c) == ["ok", "ok"]
    await work.house.clock.advance(50)
    assert values(await work.take()) == [b"b"]


async def test_a_page_of_sqlite_after_another_is_read(work: Work, monkeypatch):
    monkeypatch.setattr(limits, "DELAYS_PAGE", 2)
    await work.put()
    await delayed(work, (b"first", 10))
    assert await work.take() == []
    await delayed(work, *((b"%d" % i, 100 - 10 * i) for i in range(9)))
    await work.house.clock.advance(101)
    found = []
    while taken := await work.take(4):
        found += taken
    assert sorted(one.offset for one in found) == list(range(10))


async def test_a_fork_keeps_the_delays_of_what_it_shares(work: Work):
    await delayed(work, (b"a", 60), (b"b", 0))
    await work.house.done(work.house.broker.topics.fork("f", "t"))
    await work.put("f")
    (b,) = await work.take()
    assert b.value == b"b"
    await work.ack(b)
    await work.house.clock.advance(60)
    assert values(await work.take()) == [b"a"]


async def test_delays_that_have_passed_are_forgotten_unless_a_queue_needs_them(work: Work):
    await work.put()
    await delayed(work, (b"a", 10))
    assert await work.take() == []
    shares = work.house.broker._catalog.delays.shares
    assert shares.used == 1
    await work.house.clock.advance(300)
    assert shares.used == 1
    assert values(await work.take()) == [b"a"]
    await work.house.clock.advance(300)
    assert shares.used == 0
    operations = [o for e in work.house.journal.entries for o in e.entry.contents.operations]
    assert sum(isinstance(operation, DelaysPassed) for operation in operations) == 1


async def test_forgetting_delays_closes_no_stretched_window_early(work: Work):
    await delayed(work, (b"a", 10))
    broker, clock = work.house.broker, work.house.clock
    broker.linger.default_ms = 28_000
    while (window := broker._sequencer._open) is None:
        await clock.advance(10)
    assert window.deadline_s - window.opened_s == 28


async def test_a_trimmed_delayed_record_is_lost(work: Work):
    await work.put()
    await delayed(work, (b"a", 60), (b"b", 0))
    (b,) = await work.take()
    await work.house.done(work.house.broker.topics.trim("t", 1))
    await work.house.clock.advance(20)
    await work.ack(b)
    await work.house.clock.advance(60)
    assert await work.take() == []
    assert ((await work.view()).topics[0].lost, (await work.view()).in_flight) == (1, 0)


async def test_no_more_records_are_delayed_than_there_may_be(work: Work, monkeypatch):
    await work.put()
    shares = work.house.broker._catalog.delays.shares
    monkeypatch.setattr(shares, "limit", 2)
    await delayed(work, (b"a", 60), (b"b", 60))
    with pytest.raises(OverloadedError, match="delayed"):
        await delayed(work, (b"c", 60))
    await delayed(work, (b"d", 0))
    assert values(await work.take()) == [b"d"]


async def test_a_retry_does_not_wait_for_a_clock_that_was_wrong(work: Work):
    await work.house.appended("t", b"a")
    await work.put()
    (a,) = await work.take()
    work.house.clock.wall_offset_us += 3_600_000_000
    await work.house.done(work.queues.retry("q", [a.token], 1_000, OPERATOR))
    work.house.clock.wall_offset_us -= 3_600_000_000
    work.restart()
    await work.house.clock.advance(2)
    assert values(await work.take()) == [b"a"]


async def test_what_queues_need_of_many_topics_is_looked_up_once_and_in_slices(
    work: Work, monkeypatch: pytest.MonkeyPatch
):
    for i in range(4):
        await delayed(work, (b"a", 10 + i % 2 * 100_000), topic=f"t{i}")
    for i in range(3):
        settings = QueueSettings(topics=("*",))
        await work.house.done(work.queues.put(f"q{i}", settings))
        assert await work.queues.take(f"q{i}", 1, 0, None, OPERATOR) == []
    looked_up = 0
    spans = Delays.spans

    def counted(delays: Delays, topic: Topic) -> list[Span]:
        nonlocal looked_up
        looked_up += 1
        return spans(delays, topic)

    monkeypatch.setattr(Delays, "spans", counted)
    monkeypatch.setattr(tasks, "SLICE_S", 0)
    turns = 0
    looking = asyncio.ensure_future(work.house.broker._delays._needed_from_us())
    while not looking.done():
        await asyncio.sleep(0)
        turns += 1
    assert looked_up == 3 * 4
    assert turns > 3 * 4
    assert len(await looking) == 4


async def test_delays_of_many_topics_are_forgotten_in_one_entry(work: Work):
    for i in range(5):
        await delayed(work, (b"a", 10), topic=f"t{i}")
    shares = work.house.broker._catalog.delays.shares
    await work.house.clock.advance(150)
    assert shares.used == 0
    entries = [e.entry.contents.operations for e in work.house.journal.entries]
    passed = [sum(isinstance(one, DelaysPassed) for one in operations) for operations in entries]
    assert [one for one in passed if one] == [5]

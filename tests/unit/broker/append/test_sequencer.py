"""Windows are closed, stored one at a time, applied and acknowledged in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.values import Appended
from seb_appliance.errors import (
    FencedError,
    InternalError,
    OutcomeUnknownError,
    ShuttingDownError,
)
from seb_appliance.formats.operations import Append, AuditNoted, TopicCreated
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.fakes import settle
from tests.support.subscribing import until
from tests.unit.broker.conftest import House


async def test_nothing_is_acknowledged_before_linger_has_passed(house: House) -> None:
    waiting = house.append("t", b"a")
    await house.clock.advance(0.009)
    assert not waiting.done()
    await house.clock.advance(0.001)
    assert (await waiting).offset == 0


async def test_appends_of_one_window_share_one_entry_and_one_batch(house: House) -> None:
    tasks = [house.append("t", b"a"), house.append("t", b"b", b"c"), house.append("u", b"d")]
    await house.clock.advance(0.01)
    assert [(await t).offset for t in tasks] == [0, 1, 0]
    (encoded,) = house.journal.entries
    kinds = [type(operation) for operation in encoded.entry.contents.operations]
    assert kinds == [TopicCreated, Append, AuditNoted, TopicCreated, Append, AuditNoted]
    assert [s.record_count for s in encoded.entry.contents.sections] == [3, 1]


async def test_while_one_entry_is_in_flight_the_next_window_fills(house: House) -> None:
    house.journal.hold()
    first = house.append("t", b"a")
    await house.clock.advance(0.01)
    later = [house.append("t", b"b"), house.append("t", b"c")]
    await house.clock.advance(5)
    assert not first.done()
    assert not any(t.done() for t in later)
    house.journal.release()
    await house.clock.advance(0.01)
    assert [(await t).offset for t in [first, *later]] == [0, 1, 2]
    assert len(house.journal.entries) == 2


@pytest.mark.parametrize(("put_s", "gathers_s"), [(1.0, 0.01), (0.02, 0.005)])
async def test_a_window_that_waited_for_an_entry_stays_open_for_the_next_requests(
    house: House, put_s: float, gathers_s: float
) -> None:
    house.journal.hold()
    first = house.append("t", b"a")
    await house.clock.advance(0.01)
    waited = house.append("t", b"b")
    await house.clock.advance(put_s)
    house.journal.release()
    await first
    await house.clock.advance(gathers_s * 0.9)
    joined = house.append("t", b"c")
    await settle()
    assert len(house.journal.entries) == 1
    await house.clock.advance(gathers_s * 0.2)
    assert [(await one).offset for one in (waited, joined)] == [1, 2]
    assert len(house.journal.entries) == 2


def two_windows(house: House) -> list[asyncio.Task[Appended]]:
    """Appends that fill two windows."""
    return [house.append("t", b"x" * 1_000_000) for _ in range(18)]


@pytest.mark.parametrize("ahead", [True, False])
async def test_a_full_window_is_encoded_while_the_entry_before_it_is_in_flight(
    house: House, ahead: bool
) -> None:
    house.journal.encodes_ahead = ahead
    await house.topic("t", linger_ms=10)
    house.journal.hold()
    first = house.append("t", b"a")
    await house.clock.advance(0.01)
    stored = len(house.journal.entries)
    later = two_windows(house)
    await settle()
    expected = stored + (2 if ahead else 1)

    async def encoded() -> bool:
        return len(house.journal.encoded) == expected

    await until(encoded)
    assert not first.done()
    house.journal.release()
    answers = await asyncio.gather(first, *later)
    assert [answer.offset for answer in answers] == list(range(19))
    assert len(house.journal.entries) == stored + 3  # with the first


async def test_nothing_is_acknowledged_that_was_encoded_when_another_took_over(
    house: House,
) -> None:
    await house.topic("t", linger_ms=10)
    house.journal.hold()
    waiting = [house.append("t", b"a")]
    await house.clock.advance(0.01)
    waiting += two_windows(house)
    await asyncio.sleep(0)
    house.journal.fenced = True
    house.journal.release()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(answer) for answer in answers} == {FencedError}


async def test_an_idle_broker_arms_no_timer_and_writes_nothing(house: House) -> None:
    await house.appended("t", b"a")
    entries = len(house.journal.entries)
    assert house.clock.armed == 0
    await house.clock.advance(3600)
    assert len(house.journal.entries) == entries


async def test_a_full_window_closes_without_waiting_for_linger(house: House) -> None:
    await house.topic("t", linger_ms=10_000)
    waiting = [house.append("t", b"x" * 1_000_000) for _ in range(9)]
    answers = await asyncio.gather(*waiting)  # sealing a large window takes a thread
    assert [answer.offset for answer in answers] == list(range(9))


async def test_large_settings_of_topics_fill_a_window_as_records_do(house: House) -> None:
    """Else the table of contents of its entry would become too large, which ends the writer."""
    await house.topic("t")
    columns = ", ".join(f'c{i}:long=$."{"😀" * 1_500}{i}"' for i in range(10))
    changes = [columns.replace("c0", f"c{n}0") for n in range(300)]
    house.journal.hold()
    blocking = house.append("t", b"x")
    await house.clock.advance(0.02)
    changing = [
        asyncio.ensure_future(house.broker.topics.change("t", {"table_columns": one}))
        for one in changes
    ]
    await house.clock.advance(0.02)
    house.journal.release()
    stored = asyncio.gather(blocking, *changing)
    while not stored.done():  # several windows, one after the other, encoded in a thread
        await house.clock.advance(0.0001)
    await stored
    assert house.broker.topics.get("t").settings.table_columns == changes[-1]


async def test_a_window_closes_at_the_earliest_linger_of_its_topics(house: House) -> None:
    await house.topic("slow", linger_ms=5_000)
    await house.topic("fast", linger_ms=20)
    slow = house.append("slow", b"a")
    await house.clock.advance(1)
    assert not slow.done()
    fast = house.append("fast", b"b")
    await house.clock.advance(0.02)
    assert slow.done()
    assert fast.done()
    assert house.clock.armed == 0, "nothing is left to ring at the later one"


@pytest.mark.parametrize(
    ("settings", "wait_s"),
    [(BrokerSettings(linger_ms=400), 0.05), (BrokerSettings(linger_ms=20), 0.02)],
)
async def test_an_operators_event_waits_for_company_but_not_for_long(
    house: House, wait_s: float
) -> None:
    events = [
        asyncio.ensure_future(house.broker.topics.create(name, TopicSettings())) for name in "ab"
    ]
    await house.clock.advance(wait_s - 0.001)
    assert house.journal.entries == []
    await house.clock.advance(0.001)
    assert [(await event)[0].name for event in events] == ["a", "b"]
    assert len(house.journal.entries) == 1


async def test_early_flush_closes_the_window_of_a_lone_caller_at_once(house: House) -> None:
    await house.topic("t", linger_ms=1_000, early_flush=True)
    alone = house.append("t", b"a")
    await settle()
    assert alone.done()


async def test_early_flush_waits_when_others_wait_too(house: House) -> None:
    await house.topic("t", linger_ms=1_000, early_flush=True)
    house.journal.hold()
    first, second = house.append("t", b"a"), house.append("t", b"b")
    await house.clock.advance(0.5)
    house.journal.release()
    await settle()
    assert first.done()
    third = house.append("t", b"c")
    await house.clock.advance(1)
    assert (await second).offset == 1
    assert (await third).offset == 2


async def test_a_fenced_writer_acknowledges_nothing_any_more(house: House) -> None:
    await house.appended("t", b"a")
    house.journal.hold()
    in_flight = house.append("t", b"b")
    await house.clock.advance(0.01)
    behind = house.append("t", b"c")
    house.journal.fenced = True
    house.journal.release()
    await house.clock.advance(1)
    for task in (in_flight, behind, house.append("t", b"d")):
        with pytest.raises(FencedError):
            await task
    assert await house.values("t") == [b"a"]
    assert house.broker.pending.used == 0


async def test_stopping_seals_what_is_open_and_refuses_what_comes(house: House) -> None:
    await house.topic("t", linger_ms=10_000)
    waiting = house.append("t", b"a")
    await settle()
    house.broker.stop_accepting()
    refused = house.append("t", b"b")
    drained = asyncio.ensure_future(house.broker.drain(5))
    await house.clock.advance(1)
    assert (await waiting).offset == 0
    assert await drained
    with pytest.raises(ShuttingDownError):
        await refused


async def test_an_open_window_is_drained_when_there_is_nothing_in_it(house: House) -> None:
    await house.topic("t")
    await house.done(house.broker.topics.trim("t", 0))  # which adds nothing
    assert await house.broker.drain(0)
    waiting = house.append("t", b"a")
    await settle()
    assert not await house.broker.drain(0)
    await house.clock.advance(1)
    assert (await waiting).offset == 0
    assert await house.broker.drain(0)


async def test_what_could_not_be_drained_is_told_unknown(house: House) -> None:
    house.journal.hold()
    waiting = house.append("t", b"a")
    await house.clock.advance(1)
    house.broker.stop_accepting()
    drained = asyncio.ensure_future(house.broker.drain(5))
    await house.clock.advance(6)
    assert not await drained
    await house.broker.stop()
    with pytest.raises(OutcomeUnknownError):
        await waiting
    assert house.broker.pending.used == 0


async def test_what_adds_nothing_to_a_window_is_answered_and_holds_nobody_up(house: House) -> None:
    empty = asyncio.ensure_future(house.broker._writes.operate(lambda _: None))
    await house.clock.advance(0.001)
    joins = house.append("t", b"a")  # into the same window
    await house.clock.advance(1)
    assert joins.done()
    assert empty.result()
    alone = asyncio.ensure_future(house.broker._writes.operate(lambda _: None))
    await house.clock.advance(1)
    assert alone.result()
    assert len(house.journal.entries) == 1
    later = house.append("t", b"b")
    await house.clock.advance(1)
    assert later.done()
    assert house.clock.armed == 0


async def test_an_early_flush_of_nothing_holds_nobody_up(house: House) -> None:
    sequencer = house.broker._sequencer
    sequencer.close_within(sequencer.open_window(), 10.0, early=True)
    await settle()
    later = house.append("t", b"a")
    await house.clock.advance(1)
    assert later.done()


async def test_an_error_of_our_own_in_the_writer_is_told_to_all_who_wait(house: House) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("a bug")

    house.journal.append = broken  # type: ignore[assignment,method-assign]
    waiting = house.append("t", b"a")
    await house.clock.advance(1)
    with pytest.raises(InternalError, match="a bug"):
        await waiting
    with pytest.raises(InternalError):
        await house.append("t", b"b")
    writer = house.broker._writer
    assert writer is not None
    with pytest.raises(ValueError, match="a bug"):
        await writer
    house.broker._writer = None


async def test_nothing_more_is_admitted_once_another_has_taken_over(house: House) -> None:
    house.journal.fenced = True
    first = house.append("t", b"a")
    await house.clock.advance(1)
    with pytest.raises(FencedError):
        await first
    with pytest.raises(FencedError):
        house.broker._sequencer.open_window()


async def test_what_an_entry_leaves_to_be_done_in_steps_is_done_before_it_is_acknowledged(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def steps() -> Iterator[None]:
        for step in range(3):
            yield
            done.append(step)

    monkeypatch.setattr(house.broker._catalog, "steps", steps)
    await house.appended("t", b"a")
    assert done == [0, 1, 2]


async def test_who_finds_another_writer_ends_all_that_waits(house: House) -> None:
    waiting = house.append("t", b"a")
    await settle()
    house.broker._sequencer.fail(FencedError("another appliance has taken over"))
    with pytest.raises(FencedError):
        await waiting
    await settle()
    assert house.broker._writer is not None
    assert house.broker._writer.done()
    assert house.journal.entries == []


async def test_the_writer_pauses_while_sqlite_is_behind(house: House) -> None:
    house.state.pause_s = 5.0
    await house.appended("t", b"a")
    waiting = house.append("t", b"b")
    await house.clock.advance(3)
    assert not waiting.done()
    await house.clock.advance(2)
    assert (await waiting).offset == 1

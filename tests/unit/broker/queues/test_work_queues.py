"""Work queues over a whole broker: each record goes to one worker, and comes back if it fails."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From, NewRecords, ReadRequest
from seb_appliance.errors import (
    BadRequestError,
    OutcomeUnknownError,
    QueueNotFoundError,
    ShuttingDownError,
    TopicNotFoundError,
)
from seb_appliance.formats.queues.queues import OffsetRange, QueueSettings
from tests.support.fakes import settle
from tests.unit.broker.conftest import ADMIN
from tests.unit.broker.queues.conftest import Work, values


async def test_each_record_goes_to_one_worker_and_is_done_when_it_is_acknowledged(work: Work):
    await work.house.appended("t", b"a", b"b", b"c")
    assert await work.put()
    first, second = await work.take(2), await work.take(2)
    assert values(first) == [b"a", b"b"]
    assert values(second) == [b"c"]
    assert await work.take() == []
    assert await work.ack(*first, *second) == ["ok", "ok", "ok"]
    view = await work.view()
    assert (view.in_flight, view.topics[0].waiting, view.topics[0].acked) == (0, 0, 3)


async def test_a_lease_that_ends_counts_as_a_delivery_and_a_late_ack_changes_nothing(work: Work):
    await work.house.appended("t", b"a")
    await work.put(lease_ms=10_000)
    (first,) = await work.take()
    await work.house.clock.advance(11)
    (second,) = await work.take()
    assert (first.attempt, second.attempt) == (1, 2)
    assert await work.ack(first) == ["lease_ended"]
    assert (await work.view()).in_flight == 1
    assert await work.ack(second) == ["ok"]
    assert await work.ack(second, first) == ["settled", "settled"]


async def test_an_acknowledgement_lies_in_the_object_of_the_records_of_its_window(work: Work):
    await work.house.appended("t", b"a")
    await work.put()
    (a,) = await work.take()
    before = len(work.house.journal.entries)
    both = asyncio.gather(
        work.queues.ack("q", [a.token], OPERATOR),
        work.house.broker.appends.append(
            ADMIN, "t", NewRecords([b"b"]), work.house.broker.pending.reserve(OPERATOR, 1), None
        ),
    )
    assert (await work.house.done(both))[0] == ["ok"]
    assert await work.take()
    assert len(work.house.journal.entries) == before + 1


async def test_an_extended_lease_lasts(work: Work):
    await work.house.appended("t", b"a")
    await work.put(lease_ms=10_000)
    (first,) = await work.take()
    assert await work.queues.extend("q", [first.token], 60_000) == ["ok"]
    await work.house.clock.advance(50)
    assert await work.take() == []
    assert await work.ack(first) == ["ok"]


async def test_no_lease_is_told_as_ended_while_the_appliance_stops(work: Work):
    await work.house.appended("t", b"a", b"b")
    await work.put(dead_letter="dead")
    first, second = await work.take()
    rejecting = asyncio.create_task(work.queues.reject("q", [second.token], "no use"))
    await settle()
    work.house.broker.stop_accepting()
    with pytest.raises(OutcomeUnknownError):
        await rejecting
    with pytest.raises(ShuttingDownError):
        await work.queues.extend("q", [first.token], 60_000)
    with pytest.raises(ShuttingDownError):
        await work.queues.ack("q", [first.token], OPERATOR)


async def test_a_retry_comes_back_after_its_delay_and_too_many_make_a_dead_letter(work: Work):
    await work.house.appended("t", b"a")
    await work.put(max_deliveries=2, dead_letter="dead")
    (first,) = await work.take()
    assert await work.retry(first, delay_ms=5_000) == ["ok"]
    assert await work.take() == []
    await work.house.clock.advance(5)
    (second,) = await work.take()
    assert second.attempt == 2
    assert await work.retry(second) == ["ok"]
    await work.house.clock.advance(1)
    result = await work.house.broker.read("dead", ReadRequest(From(earliest=True)))
    (piece,) = result.slices
    headers = msgspec.msgpack.decode(piece.batch.columns.headers.get(0), type=dict[str, bytes])
    assert piece.batch.columns.values.get(0) == b"a"
    assert headers["seb-dead-topic"] == b"t"
    assert headers["seb-dead-offset"] == b"0"
    assert headers["seb-dead-attempts"] == b"2"
    assert headers["seb-dead-reason"] == b"max_deliveries"
    view = await work.view()
    assert (view.topics[0].rejected, view.topics[0].waiting, view.doomed) == (1, 0, 0)


async def test_a_rejected_record_is_a_dead_letter_with_its_reason_or_is_dropped(work: Work):
    await work.house.appended("t", b"a", b"b")
    await work.put(dead_letter="dead")
    a, b = await work.take()
    assert await work.reject(a) == ["ok"]
    assert await work.house.values("dead") == [b"a"]
    await work.put()  # without dead letters; the lease goes on
    assert await work.reject(b) == ["ok"]
    assert await work.house.values("dead") == [b"a"]
    assert await work.ack(a, b) == ["settled", "settled"]
    assert (await work.view()).topics[0].rejected == 2


async def test_a_dead_letter_that_cannot_be_stored_waits(work: Work):
    await work.house.appended("t", b"a" * 100)
    await work.house.topic("dead", max_record_bytes=10)
    await work.put(dead_letter="dead", max_deliveries=1)
    await work.retry(*await work.take())
    view = await work.view()
    assert view.doomed == 1
    assert "100 bytes" in view.failure
    await work.put(dead_letter="large", max_deliveries=1)
    await work.house.clock.advance(31)
    assert await work.house.values("large") == [b"a" * 100]
    assert (await work.view()).failure == ""


async def test_no_later_record_of_a_key_is_out_while_an_earlier_one_is_not_done(work: Work):
    await work.keyed((b"x", b"x1"), (b"y", b"y1"), (b"x", b"x2"), (None, b"free"), (b"x", b"x3"))
    await work.put(ordering="key")
    first = await work.take()
    assert values(first) == [b"x1", b"y1", b"free"]
    await work.retry(first[0], delay_ms=5_000)
    assert await work.take() == []
    await work.house.clock.advance(5)
    (again,) = await work.take()
    assert again.value == b"x1"
    await work.ack(again)
    (following,) = await work.take()
    assert following.value == b"x2"
    await work.ack(following)
    assert values(await work.take()) == [b"x3"]


@pytest.mark.parametrize("done", ["acked", "rejected"])
async def test_the_next_record_of_a_key_waits_until_it_is_stored_that_the_first_is_done(
    work: Work, done: str
):
    """A kill before that would bring the first one back behind the second one."""
    await work.keyed((b"x", b"x1"), (b"y", b"y1"), (b"x", b"x2"))
    await work.put(ordering="key")
    first, _ = await work.take()
    waiting = work.taking(wait_ms=60_000)
    work.house.journal.hold()
    if done == "acked":
        ending = asyncio.ensure_future(work.queues.ack("q", [first.token], OPERATOR))
    else:
        ending = asyncio.ensure_future(work.queues.reject("q", [first.token], "no use"))
    await work.house.clock.advance(1)
    assert not waiting.done()
    work.house.journal.release()
    await work.house.clock.advance(0.1)
    assert await ending == ["ok"]
    assert values(work.told(await waiting)) == [b"x2"]


@pytest.mark.parametrize("gone", ["closed", "deleted"])
async def test_what_is_stored_for_a_queue_or_topic_that_is_gone_hands_nothing_out(
    work: Work, gone: str
):
    await work.keyed((b"x", b"x1"), (b"x", b"x2"))
    await work.put(ordering="key")
    (first,) = await work.take()
    live = work.queues._live["q"]
    work.house.journal.hold()
    acking = asyncio.ensure_future(work.queues.ack("q", [first.token], OPERATOR))
    await work.house.clock.advance(0.1)
    if gone == "closed":
        going = asyncio.ensure_future(work.queues.delete("q"))
    else:
        going = asyncio.ensure_future(work.house.broker.topics.delete("t"))
    await work.house.clock.advance(0.1)
    work.house.journal.release()
    await work.house.clock.advance(1)
    await going
    assert await acking == ["ok"]
    assert len(live.deliveries) == 0


async def test_what_was_out_is_handed_out_again_after_a_restart_with_its_failures(work: Work):
    await work.house.appended("t", b"a", b"b", b"c")
    await work.put()
    a, b, c = await work.take()
    await work.ack(b)
    await work.retry(c, delay_ms=0)
    work.restart()
    await work.house.clock.advance(1)
    again = await work.take()
    assert [(one.value, one.attempt) for one in again] == [(b"a", 1), (b"c", 2)]
    assert await work.ack(a) == ["lease_ended"]


async def test_records_that_were_trimmed_are_told_as_lost(work: Work):
    await work.house.appended("t", b"a", b"b", b"c")
    await work.put()
    await work.house.done(work.house.broker.topics.trim("t", 2))
    assert values(await work.take()) == [b"c"]
    await work.house.clock.advance(1)
    assert (await work.view()).topics[0].lost == 2
    (event,) = work.events()
    assert event.lost == [OffsetRange(0, 2)]


async def test_a_retry_of_a_trimmed_record_is_lost(work: Work):
    await work.house.appended("t", b"a", b"b")
    await work.put()
    a, _ = await work.take()
    await work.retry(a, delay_ms=0)
    await work.house.done(work.house.broker.topics.trim("t", 1))
    await work.house.clock.advance(1)
    assert await work.take() == []
    assert (await work.view()).topics[0].lost == 1


async def test_a_deleted_topic_leaves_its_queue_without_a_trace(work: Work):
    await work.house.appended("t", b"a", b"b")
    await work.put("*")
    a, b = await work.take()
    await work.retry(a, delay_ms=0)
    await work.house.done(work.house.broker.topics.delete("t"))
    assert await work.ack(b) == ["lease_ended"]
    await work.house.appended("t", b"new")
    assert values(await work.take()) == [b"new"]
    assert [(one.acked, one.waiting) for one in (await work.view()).topics] == [(0, 1)]


async def test_a_pattern_covers_topics_that_are_made_later(work: Work):
    await work.put("orders.*")
    waiting = work.taking(wait_ms=60_000)
    await settle()
    await work.house.appended("other", b"no")
    await work.house.appended("orders.eu", b"yes")
    assert values(work.told(await waiting)) == [b"yes"]


async def test_a_changed_pattern_forgets_what_it_left_and_ends_all_leases(work: Work):
    await work.house.appended("a", b"a1")
    await work.house.appended("b", b"b1")
    await work.put("a", "b")
    taken = await work.take()
    await work.ack(next(one for one in taken if one.topic == "a"))
    assert not await work.put("b")
    assert await work.ack(next(one for one in taken if one.topic == "b")) == ["lease_ended"]
    (again,) = await work.take()
    assert (again.value, again.attempt) == (b"b1", 1)
    await work.put("a", "b")
    assert values(await work.take()) == [b"a1", b"b1"]  # as if it had never read a
    assert [one.acked for one in (await work.view()).topics] == [0, 0]


async def test_a_queue_begins_again_where_it_is_told_to_and_its_leases_end(work: Work):
    async def restart(start: From, topic: str | None, queue: str = "q") -> dict[str, int]:
        return await work.house.done(work.queues.restart(queue, start, topic))

    await work.house.appended("t", b"a", b"b", b"c")
    await work.house.appended("u", b"x")
    await work.put("t", "u")
    taken = await work.take(10)
    (late,) = [one for one in taken if one.value == b"c"]
    await work.ack(*[one for one in taken if one is not late])
    assert await restart(From(last=2), "t") == {"t": 1}
    assert await work.ack(late) == ["lease_ended"]
    assert values(await work.take(10)) == [b"b", b"c"]
    assert await restart(From(offset=99), None) == {"t": 3, "u": 1}
    assert await work.take(10) == []
    with pytest.raises(TopicNotFoundError):
        await restart(From(earliest=True), "absent")
    with pytest.raises(QueueNotFoundError):
        await restart(From(earliest=True), None, "absent")


async def test_a_queue_that_starts_at_the_latest_record_skips_what_is_there(work: Work):
    await work.house.appended("t", b"old")
    await work.put(start="latest")
    await work.house.appended("t", b"new")
    assert values(await work.take()) == [b"new"]
    assert (await work.view()).topics[0].lost == 0


async def test_a_deleted_queue_is_gone_for_those_who_wait(work: Work):
    await work.house.topic("t")
    await work.put()
    waiting = work.taking(wait_ms=60_000)
    await settle()
    await work.house.done(work.queues.delete("q"))
    with pytest.raises(QueueNotFoundError):
        await waiting
    with pytest.raises(QueueNotFoundError):
        await work.house.done(work.queues.delete("q"))


async def test_a_token_of_another_queue_or_of_nobody_is_refused(work: Work):
    await work.house.appended("t", b"a")
    await work.put()
    (mine,) = await work.take()
    forged = [
        work.queues.token("other", Place(1, 0), 1),
        mine.token[:-1] + ("A" if mine.token[-1] != "A" else "B"),
        mine.token[1:],
        "é" * len(mine.token),
        "",
    ]
    results = await work.house.done(work.queues.ack("q", forged, OPERATOR))
    assert results == ["lease_ended"] * 5
    assert (await work.view()).in_flight == 1


async def test_a_queue_does_not_read_its_own_dead_letters(work: Work):
    with pytest.raises(BadRequestError, match="dead letters"):
        await work.put("**", dead_letter="dead")


async def test_no_more_queues_than_there_may_be_are_made(work: Work):
    shares = next(one for one in work.house.broker.shares if one.name == "queues")
    shares.limit = 1
    assert await work.put()
    assert not await work.put()
    with pytest.raises(BadRequestError, match="Delete queues"):
        await work.house.done(work.queues.put("other", QueueSettings(topics=("t",))))


async def test_a_pattern_of_too_many_topics_is_refused(work: Work, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "QUEUE_TOPICS_MAX", 1)
    await work.house.topic("a")
    await work.house.topic("b")
    with pytest.raises(BadRequestError, match="2 topics"):
        await work.put("*")


async def test_a_lease_that_ended_still_counts_after_a_restart(work: Work):
    await work.house.appended("t", b"a")
    await work.put(lease_ms=10_000)
    await work.take()
    await work.house.clock.advance(11)
    work.restart()
    (again,) = await work.take()
    assert again.attempt == 2

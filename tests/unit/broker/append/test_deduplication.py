"""Retrying safely: Idempotency-Keys, producers' seqs, appends at an expected position."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp, RequestStamp
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.values import Appended
from seb_appliance.errors import (
    FencedError,
    IdempotencyMismatchError,
    OutcomeUnknownError,
    PreconditionFailedError,
    RecordTooLargeError,
    SequenceGapError,
    StaleEpochError,
    TopicNotFoundError,
)
from tests.unit.broker.conftest import House

DAY_S = 24 * 3600


def once(key: str = "k", body: str = "b") -> Conditions:
    return Conditions(
        request=RequestStamp(key.encode().ljust(16), bytes(16), body.encode().ljust(16))
    )


def numbered(seq: int, epoch: int = 0, producer_id: str = "p") -> Conditions:
    return Conditions(producer=ProducerStamp(producer_id, epoch, seq))


def at(offset: int) -> Conditions:
    return Conditions(expected_offset=offset)


async def sent(house: House, conditions: Conditions, value: bytes = b"v") -> Appended:
    """The answer to an append to topic t, with the time that it needs."""
    task = house.append("t", value, conditions=conditions)
    await house.clock.advance(1)
    return await task


async def refused(house: House, conditions: Conditions, error: type[Exception]):
    entries = len(house.journal.entries)
    with pytest.raises(error) as raised:
        await sent(house, conditions)
    assert len(house.journal.entries) == entries
    assert house.broker.pending.used == 0
    return raised.value


async def test_a_repeated_request_gets_the_first_answer_and_stores_nothing(house: House) -> None:
    await house.appended("t", b"before")
    first = await sent(house, once())
    again = await sent(house, once())
    assert (again.offset, again.count, again.timestamp_us) == (1, 1, first.timestamp_us)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.topic_id == first.topic_id
    assert await house.values("t") == [b"before", b"v"]
    assert house.broker.pending.used == 0


async def test_a_repeat_while_the_first_is_in_flight_waits_for_it(house: House) -> None:
    house.journal.hold()
    first = house.append("t", b"v", conditions=once())
    await house.clock.advance(0.01)
    in_flight = [house.append("t", b"v", conditions=once()) for _ in range(3)]
    await house.clock.advance(5)
    assert not any(task.done() for task in (first, *in_flight))
    house.journal.release()
    await house.clock.advance(1)
    assert [(await task).offset for task in (first, *in_flight)] == [0, 0, 0, 0]
    assert [(await task).replayed for task in (first, *in_flight)] == [False, True, True, True]
    assert await house.values("t") == [b"v"]


async def test_a_repeat_in_the_very_same_window_waits_for_it(house: House) -> None:
    tasks = [house.append("t", b"v", conditions=once()) for _ in range(5)]
    await house.clock.advance(1)
    assert [(await task).offset for task in tasks] == [0] * 5
    assert await house.values("t") == [b"v"]


async def test_a_repeat_that_waits_too_long_is_told_unknown(house: House) -> None:
    house.journal.hold()
    first = house.append("t", b"v", conditions=once())
    await house.clock.advance(0.01)
    again = house.append("t", b"v", conditions=once(), timeout_ms=200)
    await house.clock.advance(0.2)
    with pytest.raises(OutcomeUnknownError):
        await again
    house.journal.release()
    await house.clock.advance(1)
    assert (await first).offset == 0


async def test_a_repeat_fails_as_the_first_does_when_the_writer_is_fenced(house: House) -> None:
    house.journal.hold()
    tasks = [house.append("t", b"v", conditions=once()) for _ in range(2)]
    tasks += [house.append("u", b"v", conditions=numbered(0)) for _ in range(2)]
    await house.clock.advance(0.01)
    tasks += [house.append("t", b"v", conditions=once())]
    house.journal.fenced = True
    house.journal.release()
    await house.clock.advance(1)
    for task in tasks:
        with pytest.raises(FencedError):
            await task
    assert house.broker.pending.used == 0


async def test_another_body_under_the_same_key_is_refused(house: House) -> None:
    await sent(house, once(body="one"))
    await refused(house, once(body="two"), IdempotencyMismatchError)


async def test_another_body_while_the_first_is_pending_is_refused_once_that_is_stored(
    house: House,
) -> None:
    house.journal.hold()
    first = house.append("t", b"v", conditions=once(body="one"))
    await house.clock.advance(0.01)
    other = house.append("t", b"w", conditions=once(body="two"))
    await house.clock.advance(1)
    assert not other.done()
    house.journal.release()
    await house.clock.advance(1)
    assert (await first).offset == 0
    with pytest.raises(IdempotencyMismatchError):
        await other


async def test_other_keys_are_other_requests(house: House) -> None:
    assert [(await sent(house, once(key))).offset for key in "abc"] == [0, 1, 2]


async def test_a_request_that_was_refused_is_not_remembered(house: House) -> None:
    with pytest.raises(RecordTooLargeError):
        await sent(house, once(), b"x" * (1 << 20) + b"x")
    assert not (await sent(house, once())).replayed


async def test_a_request_is_forgotten_after_a_day_by_the_time_of_an_applied_entry(
    house: House,
) -> None:
    await sent(house, once())
    await house.clock.advance(DAY_S + 1)
    assert (await sent(house, once())).replayed  # no entry has been applied since
    await house.appended("u", b"time passes")
    assert not (await sent(house, once())).replayed


async def test_an_append_is_forgotten_with_its_topic(house: House) -> None:
    first = await sent(house, once())
    await house.done(house.broker.topics.delete("t"))
    anew = await sent(house, once())
    assert (anew.replayed, anew.offset) == (False, 0)
    assert anew.topic_id != first.topic_id
    assert (await sent(house, once())).topic_id == anew.topic_id


async def test_a_request_that_an_older_release_remembers_is_not_done_again(house: House) -> None:
    old = RequestStamp(b"o" * 16, b"o" * 16, b"b" * 16)
    first = await sent(house, Conditions(request=old))
    new = RequestStamp(b"n" * 16, b"o" * 16, b"b" * 16)
    again = await sent(house, Conditions(request=new))
    assert (again.replayed, again.offset) == (True, first.offset)


async def test_the_seqs_of_a_producer_follow_each_other(house: House) -> None:
    tasks = [house.append("t", b"%d" % seq, conditions=numbered(seq)) for seq in range(3)]
    await house.clock.advance(1)
    assert [(await task).offset for task in tasks] == [0, 1, 2]
    assert (await sent(house, numbered(3))).offset == 3


async def test_one_of_the_last_five_seqs_answers_its_first_offsets(house: House) -> None:
    for seq in range(7):
        await sent(house, numbered(seq))
        await house.appended("t", b"other")
    for seq in range(7):
        again = await sent(house, numbered(seq))
        assert again.replayed
        assert again.offset == (2 * seq if seq >= 2 else None)
    assert len(await house.values("t")) == 14


@pytest.mark.parametrize("stored", [True, False])
async def test_a_repeat_with_another_checksum_is_refused(house: House, stored: bool) -> None:
    def checked(checksum: int | None) -> Conditions:
        return Conditions(producer=ProducerStamp("p", 0, 0, checksum))

    if not stored:
        house.journal.hold()
    first = house.append("t", b"v", conditions=checked(7))
    await house.clock.advance(1)
    again = [house.append("t", b"v", conditions=checked(number)) for number in (7, None, 8)]
    await house.clock.advance(1)
    assert [task.done() for task in again] == [stored] * 3
    house.journal.release()
    await house.clock.advance(1)
    assert [(await task).offset for task in (first, *again[:2])] == [0, 0, 0]
    with pytest.raises(IdempotencyMismatchError, match="stored with checksum 7; 8 was received"):
        await again[2]
    assert await house.values("t") == [b"v"]


async def test_a_duplicate_in_flight_waits_for_the_first(house: House) -> None:
    house.journal.hold()
    first = house.append("t", b"v", conditions=numbered(0))
    await house.clock.advance(0.01)
    again = house.append("t", b"v", conditions=numbered(0))
    await house.clock.advance(1)
    assert not again.done()
    house.journal.release()
    await house.clock.advance(1)
    assert ((await first).offset, (await again).offset) == (0, 0)
    assert await house.values("t") == [b"v"]


async def test_a_gap_is_refused_with_what_was_expected(house: House) -> None:
    await sent(house, numbered(0))
    gap = await refused(house, numbered(2), SequenceGapError)
    assert gap.data == {"expected": 1, "received": 2}
    assert (await sent(house, numbered(1))).offset == 1


async def test_a_gap_behind_something_pending_is_refused_once_that_is_stored(
    house: House,
) -> None:
    house.journal.hold()
    first = house.append("t", b"v", conditions=numbered(0))
    gap = house.append("t", b"v", conditions=numbered(2))
    await house.clock.advance(1)
    assert not gap.done()
    house.journal.release()
    await house.clock.advance(1)
    assert (await first).offset == 0
    with pytest.raises(SequenceGapError):
        await gap


async def test_an_unknown_producer_begins_at_seq_0(house: House) -> None:
    gap = await refused(house, numbered(1), SequenceGapError)
    assert gap.data == {"expected": 0, "received": 1}


async def test_a_new_epoch_begins_at_seq_0(house: House) -> None:
    await sent(house, numbered(0, epoch=3))
    await sent(house, numbered(1, epoch=3))
    gap = await refused(house, numbered(2, epoch=4), SequenceGapError)
    assert gap.data == {"expected": 0, "received": 2}
    assert (await sent(house, numbered(0, epoch=4))).offset == 2
    assert (await sent(house, numbered(0, epoch=4))).offset == 2


async def test_an_older_epoch_is_refused(house: House) -> None:
    await sent(house, numbered(0, epoch=3))
    await sent(house, numbered(0, epoch=5))
    for seq in (0, 1, 2):
        stale = await refused(house, numbered(seq, epoch=3), StaleEpochError)
        assert stale.data == {"current_epoch": 5}


async def test_a_producer_has_its_own_seqs_on_each_topic(house: House) -> None:
    await sent(house, numbered(0))
    other = house.append("u", b"v", conditions=numbered(0))
    await house.clock.advance(1)
    assert not (await other).replayed
    await refused(house, numbered(2), SequenceGapError)


async def test_a_refused_append_takes_no_seq(house: House) -> None:
    with pytest.raises(RecordTooLargeError):
        await sent(house, numbered(0), b"x" * (1 << 20) + b"x")
    assert (await sent(house, numbered(0))).offset == 0


async def test_a_duplicate_is_answered_though_its_records_would_not_be_taken_now(
    house: House,
) -> None:
    await sent(house, numbered(0), b"x" * 100)
    await house.done(house.broker.topics.change("t", {"max_record_bytes": 10}))
    assert (await sent(house, numbered(0), b"x" * 100)).offset == 0


async def test_a_producer_that_an_older_release_stored_goes_on(house: House) -> None:
    for seq in range(2):
        await sent(house, numbered(seq))
    now = [Conditions(producer=ProducerStamp.of("p", "key", 0, seq)) for seq in range(4)]
    assert (await sent(house, now[1])).offset == 1
    error = await refused(house, now[3], SequenceGapError)
    assert "producer 'p'" in error.detail
    assert (await sent(house, now[2])).offset == 2
    again = await sent(house, now[1])
    assert (again.offset, again.replayed) == (None, True)
    assert (await sent(house, now[3])).offset == 3


async def test_a_topic_takes_its_producers_with_it(house: House) -> None:
    for seq in range(2):
        await sent(house, numbered(seq))
    await house.done(house.broker.topics.delete("t"))
    await refused(house, numbered(2), SequenceGapError)
    assert (await sent(house, numbered(0))).offset == 0


async def test_a_producer_is_forgotten_after_seven_idle_days(house: House) -> None:
    await sent(house, numbered(0))
    await house.clock.advance(6 * DAY_S)
    assert (await sent(house, numbered(1))).offset == 1
    await house.clock.advance(7 * DAY_S + 1)
    await house.appended("u", b"time passes")
    await refused(house, numbered(2), SequenceGapError)
    assert not (await sent(house, numbered(0))).replayed


class TestWithoutAutoCreate:
    @pytest.fixture
    def settings(self) -> BrokerSettings:
        return BrokerSettings(auto_create_topics=False)

    async def test_a_missing_topic_is_told_before_a_gap(self, house: House) -> None:
        await refused(house, numbered(5), TopicNotFoundError)


async def test_an_append_at_the_log_end_is_taken(house: House) -> None:
    assert [(await sent(house, at(n))).offset for n in range(3)] == [0, 1, 2]


async def test_an_append_elsewhere_is_refused_with_the_log_end(house: House) -> None:
    await house.appended("t", b"a", b"b")
    for wrong in (0, 1, 3):
        error = await refused(house, at(wrong), PreconditionFailedError)
        assert error.data == {"log_end_offset": 2}


async def test_a_refusal_that_rests_on_a_pending_append_waits_for_it(house: House) -> None:
    await house.topic("t")
    house.journal.hold()
    first = house.append("t", b"v")
    await house.clock.advance(0.01)
    refused_later = house.append("t", b"w", conditions=at(0))
    await house.clock.advance(1)
    assert not refused_later.done()
    house.journal.release()
    await house.clock.advance(1)
    assert (await first).offset == 0
    with pytest.raises(PreconditionFailedError):
        await refused_later


async def test_a_refusal_that_rests_on_an_append_that_was_fenced_says_fenced(
    house: House,
) -> None:
    house.journal.hold()
    tasks = [house.append("t", b"v"), house.append("t", b"w", conditions=at(0))]
    await house.clock.advance(0.01)
    house.journal.fenced = True
    house.journal.release()
    await house.clock.advance(1)
    for task in tasks:
        with pytest.raises(FencedError):
            await task


async def test_a_refusal_that_rests_on_nothing_pending_is_told_at_once(house: House) -> None:
    await house.appended("t", b"a")
    house.journal.hold()
    elsewhere = house.append("u", b"v")
    await house.clock.advance(0.01)
    with pytest.raises(PreconditionFailedError):
        await house.append("t", b"w", conditions=at(7))
    house.journal.release()
    await house.clock.advance(1)
    await elsewhere


async def test_a_repeat_of_a_conditional_append_is_answered_though_the_log_has_grown(
    house: House,
) -> None:
    both = Conditions(request=once().request, expected_offset=0)
    await sent(house, both)
    again = await sent(house, both)
    assert (again.replayed, again.offset) == (True, 0)


async def test_what_is_remembered_fills_the_window(house: House) -> None:
    house.journal.hold()
    held = house.append("t", b"v")
    await house.clock.advance(0.01)
    name = "x" * limits.NAME_LENGTH_MAX
    first = house.append("t", b"", conditions=numbered(0, producer_id=name))
    await house.clock.advance(0.001)
    window = house.broker._sequencer.open_window()
    assert window.size_bytes > limits.NAME_LENGTH_MAX
    house.journal.release()
    await house.clock.advance(1)
    await asyncio.gather(held, first)


async def test_of_appends_at_one_position_in_one_window_the_first_wins(house: House) -> None:
    tasks = [house.append("t", b"%d" % i, conditions=at(0)) for i in range(4)]
    await house.clock.advance(1)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[0], Appended)
    assert [type(answer) for answer in answers[1:]] == [PreconditionFailedError] * 3
    assert await house.values("t") == [b"0"]

"""Idempotent producers that count records: what they send is there once, also where the seqs begin
again at 0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.api.encoding.conditions import producer_of
from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.append.retry_results import RECORD_SEQS, Producer, producer_after
from seb_appliance.broker.values import Appended
from seb_appliance.errors import (
    BadParameterError,
    IdempotencyMismatchError,
    SequenceGapError,
    StaleEpochError,
)
from seb_appliance.formats.contents import COUNTS_RECORDS, ProducerAppend, QualifiedSeq
from tests.support.fakes import START_US
from tests.unit.broker.conftest import House

LAST = RECORD_SEQS - 1


def counted(seq: int, epoch: int = 0, producer_id: str = "p 1") -> Conditions:
    return Conditions(producer=ProducerStamp(producer_id, epoch, seq, counts_records=True))


async def sent(house: House, seq: int, count: int = 1, epoch: int = 0) -> Appended:
    values = [b"%d" % ((seq + i) % RECORD_SEQS) for i in range(count)]
    task = house.append("t", *values, conditions=counted(seq, epoch))
    await house.clock.advance(1)
    return await task


async def refused(house: House, error: type[Exception], seq: int, count: int = 1, epoch: int = 0):
    entries = len(house.journal.entries)
    with pytest.raises(error) as raised:
        await sent(house, seq, count, epoch)
    assert len(house.journal.entries) == entries
    return raised.value


async def stand_at(house: House, *requests: tuple[int, int]) -> None:
    """The topic, whose producer has just sent these requests of (seq, count)."""
    await house.topic("t")
    topic_id = house.broker.topics.get("t").topic_id
    house.broker._catalog.producers.apply(topic_id, map(append_of, requests), START_US)


def append_of(request: tuple[int, int]) -> ProducerAppend:
    seq, count = request
    return ProducerAppend("p 1", 0, QualifiedSeq(seq, COUNTS_RECORDS), seq, count, 1)


async def test_the_next_seq_is_behind_the_records_of_the_last_request(house: House) -> None:
    assert [(await sent(house, seq, count)).offset for seq, count in ((0, 3), (3, 1), (4, 2))] == [
        0,
        3,
        4,
    ]
    gap = await refused(house, SequenceGapError, 7)
    assert gap.data == {"expected": 6, "received": 7}
    assert await house.values("t") == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_an_unknown_producer_is_told_by_the_expected_seq_0(house: House) -> None:
    assert (await refused(house, SequenceGapError, 5)).data == {"expected": 0, "received": 5}
    await sent(house, 0, 5)
    assert (await refused(house, SequenceGapError, 2, epoch=1)).data["expected"] == 0
    assert (await sent(house, 0, epoch=1)).offset == 5
    await refused(house, StaleEpochError, 5)


async def test_the_last_five_requests_are_answered_again(house: House) -> None:
    for seq in range(0, 14, 2):
        await sent(house, seq, 2)
    for seq in range(0, 14, 2):
        again = await sent(house, seq, 2)
        assert (again.replayed, again.offset) == (True, seq if seq >= 4 else None)
    assert len(await house.values("t")) == 14


async def test_a_repeat_with_more_or_fewer_records_is_no_repeat(house: House) -> None:
    await sent(house, 0, 3)
    for count in (2, 4):
        error = await refused(house, IdempotencyMismatchError, 0, count)
        assert f"a number of records of 3; {count} was received" in error.detail


async def test_records_behind_those_that_were_sent_are_never_taken_for_a_repeat(
    house: House,
) -> None:
    await sent(house, 0, 3)
    assert (await sent(house, 1, 2)).offset is None  # both were sent
    await refused(house, SequenceGapError, 1, 3)
    await refused(house, SequenceGapError, LAST, 1)
    assert len(await house.values("t")) == 3


async def test_seqs_begin_again_at_0_behind_the_largest_one(house: House) -> None:
    await stand_at(house, (LAST - 2, 2))
    first = await sent(house, LAST, 3)  # seqs LAST, 0, 1
    assert (await sent(house, 2, 1)).offset == 3
    again = [await sent(house, seq, count) for seq, count in ((LAST - 2, 2), (LAST, 3), (2, 1))]
    assert [one.offset for one in again] == [LAST - 2, first.offset, 3]
    assert (await sent(house, LAST - 9, 4)).offset is None
    assert (await refused(house, SequenceGapError, 4)).data["expected"] == 3
    assert await house.values("t") == [b"%d" % seq for seq in (LAST, 0, 1, 2)]


async def test_a_producer_counts_in_one_way(house: House) -> None:
    requests = Conditions(producer=ProducerStamp("p 1", 0, 2))
    await sent(house, 0, 2)
    task = house.append("t", b"x", conditions=requests)
    await house.clock.advance(1)
    with pytest.raises(IdempotencyMismatchError, match="has counted records before"):
        await task
    task = house.append("t", b"x", conditions=Conditions(producer=ProducerStamp("q", 0, 0)))
    await house.clock.advance(1)
    await task
    for epoch, seq in ((0, 1), (1, 0)):
        task = house.append("t", b"x", conditions=counted(seq, epoch, "q"))
        await house.clock.advance(1)
        with pytest.raises(IdempotencyMismatchError, match="has counted requests before"):
            await task


def test_no_producer_by_http_has_an_id_with_a_space() -> None:
    given = {b"producer-id": b"p 1", b"producer-epoch": b"0", b"producer-seq": b"0"}
    with pytest.raises(BadParameterError):
        producer_of(given, "key")


@given(st.lists(st.integers(1, 2**28), min_size=1, max_size=20), st.integers(-(2**29), 2**29))
def test_what_was_sent_is_what_lies_behind(counts: list[int], distance: int) -> None:
    """Against numbers that never begin again."""
    end, known = 0, None
    for count in counts:
        seq = QualifiedSeq(end % RECORD_SEQS, COUNTS_RECORDS)
        known = producer_after(known, 1, ProducerAppend("p", 0, seq, end, count, 0), 0)
        end += count
    assert isinstance(known, Producer)
    assert known.next_seq == end % RECORD_SEQS
    asked = end + distance
    passed = known.has_passed(asked % RECORD_SEQS)
    if distance >= 0 or asked < 0:
        assert not passed
    elif asked >= end - sum(counts[-5:]):
        assert passed

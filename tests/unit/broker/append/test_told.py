"""Appends that are decided in the order of the calls, and answered by a callback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.appends import NO_CONDITIONS, Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.append.writes import Duplicate
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    FencedError,
    OutcomeUnknownError,
    OverloadedError,
    PreconditionFailedError,
    RecordTooLargeError,
    SebError,
    SequenceGapError,
    ShuttingDownError,
    TopicNotFoundError,
)
from tests.support.fakes import settle
from tests.unit.broker.conftest import ADMIN, House


class Told:
    """`heard`: the offset of what was stored, "again" and the offset of a repeat, or the class of
    the error."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None:
        if isinstance(admitted, Duplicate):
            produced = admitted.produced
            self.heard.append(("again", None if produced is None else produced[0].offset))
        else:
            self.heard.append(admitted.offset)

    def failed(self, error: SebError) -> None:
        self.heard.append(type(error))


def numbered(seq: int) -> Conditions:
    return Conditions(producer=ProducerStamp("p 1", 0, seq, counts_records=True))


def tell(
    house: House, *values: bytes, topic: str = "t", conditions: Conditions = NO_CONDITIONS
) -> Told:
    told = Told()
    records = NewRecords(list(values))
    house.broker.appends.append_told(ADMIN, topic, records, 1, told, conditions)
    return told


async def test_requests_are_decided_in_the_order_of_the_calls(house: House) -> None:
    await house.topic("t", max_record_bytes=3)
    told = [
        tell(house, b"a", b"b", conditions=numbered(0)),
        tell(house, b"too long", conditions=numbered(2)),
        tell(house, b"c", conditions=numbered(3)),  # nobody has sent seq 2
        tell(house, b"d"),
        tell(house, b"e", conditions=numbered(2)),
    ]
    assert [one.heard for one in told] == [[], [RecordTooLargeError], [], [], []]
    await house.clock.advance(1)
    assert [one.heard for one in told] == [
        [0],
        [RecordTooLargeError],
        [SequenceGapError],
        [2],
        [3],
    ]
    assert await house.values("t") == [b"a", b"b", b"d", b"e"]
    assert house.broker.pending.used == 0


async def test_a_topic_is_made_for_its_first_records(house: House) -> None:
    told = [tell(house, b"a"), tell(house, b"b")]
    await house.clock.advance(1)
    assert [one.heard for one in told] == [[0], [1]]


async def test_a_repeat_is_told_once_its_original_is_stored(house: House) -> None:
    await house.topic("t")
    house.journal.hold()
    first = tell(house, b"a", conditions=numbered(0))
    await house.clock.advance(0.1)
    again = tell(house, b"a", conditions=numbered(0))
    gap = tell(house, b"a", conditions=numbered(7))
    await house.clock.advance(1)
    assert [first.heard, again.heard, gap.heard] == [[], [], []]
    house.journal.release()
    await house.clock.advance(1)
    assert [first.heard, again.heard, gap.heard] == [[0], [("again", 0)], [SequenceGapError]]
    late = tell(house, b"a", conditions=numbered(0))
    assert late.heard == [("again", 0)]  # at once
    assert tell(house, b"a", conditions=numbered(7)).heard == [SequenceGapError]
    assert await house.values("t") == [b"a"]


async def test_a_repeat_fails_as_its_original_does(house: House) -> None:
    await house.topic("t")
    house.journal.hold()
    told = [tell(house, b"a", conditions=numbered(seq)) for seq in (0, 0, 9)]
    await house.clock.advance(0.1)
    house.journal.fenced = True
    house.journal.release()
    await house.clock.advance(1)
    assert [one.heard for one in told] == [[FencedError]] * 3
    assert house.broker.pending.used == 0


async def test_a_bucket_that_does_not_answer_is_told_once(house: House) -> None:
    await house.topic("t")
    house.journal.hold()
    told = [tell(house, b"a", conditions=numbered(seq)) for seq in (0, 0)]
    await house.clock.advance(limits.ACK_TIMEOUT_MS_DEFAULT / 1000 + 1)
    assert [one.heard for one in told] == [[OutcomeUnknownError]] * 2
    house.journal.release()
    await house.clock.advance(1)
    assert [one.heard for one in told] == [[OutcomeUnknownError]] * 2


async def test_a_request_at_an_expected_end_is_decided_too(house: House) -> None:
    await house.topic("t")
    told = [tell(house, b"a", conditions=Conditions(expected_offset=end)) for end in (0, 7, 1)]
    await house.clock.advance(1)
    assert [one.heard for one in told] == [[0], [PreconditionFailedError], [1]]


async def test_who_comes_while_the_appliance_stops_is_told(house: House) -> None:
    house.broker.stop_accepting()
    assert tell(house, b"a").heard == [ShuttingDownError]
    assert house.broker.pending.used == 0


class TestWithLittleMemory:
    @pytest.fixture
    def settings(self) -> BrokerSettings:
        return BrokerSettings(linger_ms=10, max_pending_bytes=10_000)

    async def test_a_request_without_room_is_told_at_once(self, house: House) -> None:
        told = Told()
        house.broker.appends.append_told(ADMIN, "t", NewRecords([b"a"]), 20_000, told)
        assert told.heard == [OverloadedError]
        assert house.broker.pending.used == 0


class TestWithoutAutoCreate:
    @pytest.fixture
    def settings(self) -> BrokerSettings:
        return BrokerSettings(auto_create_topics=False)

    async def test_a_topic_that_goes_is_missed_once_it_is_gone(self, house: House) -> None:
        assert tell(house, b"a").heard == [TopicNotFoundError]
        await house.topic("t")
        house.journal.hold()
        deletion = asyncio.ensure_future(house.broker.topics.delete("t"))
        await settle()
        told = tell(house, b"a")
        await house.clock.advance(1)
        assert told.heard == []
        house.journal.release()
        await house.clock.advance(1)
        await deletion
        assert told.heard == [TopicNotFoundError]

"""Where a time lies in a log, and which record is the newest."""

from __future__ import annotations

import pytest

from seb_appliance.broker.read.reads import RecordPlace
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From, NewRecords
from seb_appliance.errors import TopicNotFoundError
from tests.unit.broker.conftest import ADMIN, House


async def filled(house: House, *entries: list[int], topic: str = "t") -> None:
    """An entry for each list of timestamps."""
    for timestamps in entries:
        records = NewRecords([b"v"] * len(timestamps), timestamps_us=list(timestamps))
        reservation = house.broker.pending.reserve(OPERATOR, 1)
        await house.done(house.broker.appends.append(ADMIN, topic, records, reservation))


async def test_a_place_is_told_with_the_timestamp_of_a_time(house: House) -> None:
    await filled(house, [10, 30], [20, 40])
    broker = house.broker
    assert await broker.offset_at("t", From(earliest=True)) == RecordPlace(0, None)
    assert await broker.offset_at("t", From(latest=True)) == RecordPlace(4, None)
    assert await broker.offset_at("t", From(timestamp_us=11)) == RecordPlace(1, 30)
    assert await broker.offset_at("t", From(timestamp_us=31)) == RecordPlace(3, 40)
    assert await broker.offset_at("t", From(timestamp_us=41)) == RecordPlace(4, None)
    with pytest.raises(TopicNotFoundError):
        await broker.offset_at("none", From(timestamp_us=1))


async def test_a_record_below_the_log_start_is_at_no_time(house: House) -> None:
    await filled(house, [10, 50, 20, 30])
    await house.done(house.broker.topics.trim("t", 2))
    assert await house.broker.offset_at("t", From(timestamp_us=15)) == RecordPlace(2, 20)
    assert await house.broker.offset_at("t", From(timestamp_us=25)) == RecordPlace(3, 30)
    assert await house.broker.offset_at("t", From(timestamp_us=40)) == RecordPlace(4, None)


async def test_the_newest_record_is_the_first_one_with_the_largest_timestamp(house: House) -> None:
    await filled(house, [10, 30], [50, 20, 50], [40])
    assert await house.broker.newest_record("t") == RecordPlace(2, 50)


async def test_the_last_record_stands_for_a_newest_one_that_is_trimmed(house: House) -> None:
    await filled(house, [10, 90], [30, 40], [35, 20])
    await house.done(house.broker.topics.trim("t", 2))
    assert await house.broker.newest_record("t") == RecordPlace(5, 20)


async def test_an_empty_log_has_no_newest_record(house: House) -> None:
    await house.topic("t")
    assert await house.broker.newest_record("t") == RecordPlace(0, None)
    await filled(house, [10, 20])
    await house.done(house.broker.topics.trim("t", 2))
    assert await house.broker.newest_record("t") == RecordPlace(2, None)


async def test_the_newest_record_of_a_fork_is_one_of_its_own(house: House) -> None:
    await filled(house, [10, 60], [20, 90])
    await house.done(house.broker.topics.fork("f", "t", 3))
    assert await house.broker.newest_record("f") == RecordPlace(2, 20)
    await filled(house, [30, 95], topic="f")
    assert await house.broker.newest_record("f") == RecordPlace(4, 95)

"""What a wrong clock does to `created`, and to everything that goes by it."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp, RequestStamp
from seb_appliance.broker.append.sealing import seal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.streams.admission import WantedStream
from seb_appliance.errors import BadBatchError
from seb_appliance.formats.contents import RequestResult
from tests.support.fakes import FakeClock
from tests.unit.broker.conftest import House

HOUR_S = 3600
DAY_US = 86_400_000_000
YEAR_US = 365 * DAY_US


def created_us(house: House) -> int:
    return house.journal.entries[-1].entry.header.created_us


async def test_a_clock_that_is_wrong_for_a_moment_does_not_move_created(house: House) -> None:
    await house.appended("t", b"before")
    house.clock.wall_offset_us = YEAR_US
    await house.appended("t", b"meanwhile")
    house.clock.wall_offset_us = 0
    await house.appended("t", b"after")
    assert abs(created_us(house) - house.clock.wall_us()) <= 2_000_000


async def test_a_repeat_is_known_after_a_jump_of_the_clock(house: House) -> None:
    first = Conditions(request=RequestStamp(b"a" * 16, bytes(16), b"b" * 16))
    stored = house.append("t", b"once", conditions=first)
    await house.clock.advance(1)
    house.clock.wall_offset_us = 30 * DAY_US
    await house.appended("t", b"another")
    again = house.append("t", b"once", conditions=first)
    await house.clock.advance(1)
    assert (await again).offset == (await stored).offset
    assert await house.values("t") == [b"once", b"another"]


async def test_a_producer_is_known_after_a_jump_of_the_clock(house: House) -> None:
    for seq in range(3):
        stamp = Conditions(producer=ProducerStamp("p", 0, seq))
        appended = house.append("t", b"%d" % seq, conditions=stamp)
        await house.clock.advance(1)
        assert (await appended).offset == 2 * seq
        house.clock.wall_offset_us += 30 * DAY_US
        await house.appended("t", b"-")


async def test_a_stream_does_not_expire_by_a_jump_of_the_clock(house: House) -> None:
    expires_us = house.clock.wall_us() + DAY_US
    wanted, room = WantedStream(expires_us=expires_us), house.broker.pending.reserve(OPERATOR, 1)
    await house.done(house.broker.streams.create("s", wanted, [b"kept"], room, THE_APPLIANCE))
    house.clock.wall_offset_us = YEAR_US
    await house.clock.advance(HOUR_S)
    assert [topic.name for topic in house.broker.topics.all()] == ["s"]
    await house.clock.advance(24 * HOUR_S)
    assert house.broker.topics.all() == []


async def test_timestamps_follow_a_clock_that_was_ahead_and_is_set_right(house: House) -> None:
    house.clock.wall_offset_us = YEAR_US
    await house.appended("t", b"wrong")
    house.clock.wall_offset_us = 0
    right = await house.appended("t", b"right")
    assert abs(right.timestamp_us - house.clock.wall_us()) <= 2_000_000


# --- the clock itself ---


async def test_it_catches_up_slowly_and_takes_nothing_back() -> None:
    clock = FakeClock()
    began_us = clock.wall_us()
    log_clock = LogClock(clock, lambda: began_us)
    clock.wall_offset_us = DAY_US
    await clock.advance(HOUR_S)
    assert log_clock.created_us() - began_us == int(1.1 * HOUR_S * 1_000_000)
    clock.wall_offset_us = -DAY_US
    before_us = log_clock.created_us()
    await clock.advance(HOUR_S)
    assert log_clock.created_us() - before_us == HOUR_S * 500_000
    assert log_clock.wall_us() == clock.wall_us()
    clock.wall_offset_us = 0
    await clock.advance(5 * HOUR_S)
    assert log_clock.created_us() == clock.wall_us()


async def test_a_log_that_lies_in_the_future_gets_older() -> None:
    """As an older release has left it, or a start with a wrong clock."""
    clock = FakeClock()
    old_us, wrong_us = clock.wall_us() - DAY_US, clock.wall_us() + YEAR_US
    log_clock = LogClock(clock, lambda: wrong_us)
    assert log_clock.ahead_s == YEAR_US / 1e6
    assert (log_clock.age_us(old_us), log_clock.age_us(wrong_us)) == (DAY_US, 0)
    await clock.advance(10 * HOUR_S)
    assert log_clock.age_us(old_us) == DAY_US + 10 * HOUR_S * 1_000_000
    assert log_clock.age_us(wrong_us) == 5 * HOUR_S * 1_000_000
    assert log_clock.cutoff_us(HOUR_S * 1_000_000, old_us) == clock.wall_us() - HOUR_S * 1_000_000
    assert wrong_us < log_clock.cutoff_us(HOUR_S * 1_000_000, wrong_us) < wrong_us + DAY_US


async def test_months_without_an_entry_are_taken_over_by_a_start_and_make_old_after_an_hour() -> (
    None
):
    clock = FakeClock()
    before_us = clock.wall_us() - 90 * DAY_US
    log_clock = LogClock(clock, clock.wall_us, before_us)
    assert log_clock.created_us() == clock.wall_us()
    await clock.advance(HOUR_S - 1)
    assert log_clock.age_us(before_us) == (HOUR_S - 1) * 1_000_000
    assert log_clock.age_us(clock.wall_us()) == 0
    await clock.advance(1)
    assert log_clock.age_us(before_us) == 90 * DAY_US + HOUR_S * 1_000_000


async def test_a_start_with_a_clock_that_is_set_right_within_an_hour_deletes_nothing() -> None:
    clock = FakeClock()
    before_us = clock.wall_us()
    clock.wall_offset_us = YEAR_US
    log_clock = LogClock(clock, lambda: before_us + YEAR_US, before_us)  # as the epoch entry says
    await clock.advance(HOUR_S / 2)
    clock.wall_offset_us = 0
    await clock.advance(HOUR_S)
    assert log_clock.age_us(before_us) == 1.5 * HOUR_S * 1_000_000


# --- what no start could read ---


@pytest.mark.parametrize("what", ["section", "result"])
def test_what_no_start_could_read_is_not_stored(what: str) -> None:
    window, time_us = Window(), limits.OFFSET_MAX + 1
    if what == "section":
        window.add_value(1, 0, None, b"value", time_us, 5)
    else:
        window.results.append(RequestResult(b"", b"", [(1, limits.OFFSET_MAX + 1, 1, 0)]))  # type: ignore[list-item]
    with pytest.raises(BadBatchError):
        seal(window, 0)

"""Streams that expire, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.streams.admission import WantedStream
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    OutcomeUnknownError,
    TopicNotFoundError,
)
from tests.support.fakes import settle
from tests.unit.broker.conftest import ADMIN, House, Nobody, append_to_stream, make_stream

HOUR_S = 3_600


async def test_a_stream_goes_when_nobody_used_it_for_its_time_to_live(house: House) -> None:
    await make_stream(house, WantedStream(ttl_s=HOUR_S))
    await house.clock.advance(HOUR_S - 10)
    house.broker.streams.use("s")
    await house.clock.advance(HOUR_S - 10)
    await append_to_stream(house, b"more")
    await house.clock.advance(HOUR_S - 10)
    house.broker.streams.get("s")  # a look is no use
    await house.clock.advance(10)
    with pytest.raises(TopicNotFoundError):
        house.broker.streams.get("s")


async def test_records_that_come_by_another_door_are_a_use_of_a_stream(house: House) -> None:
    await make_stream(house, WantedStream(ttl_s=HOUR_S))
    for n in range(3):
        await house.clock.advance(HOUR_S - 10)
        assert (await house.appended("s", b"more")).offset == n + 1
    await house.clock.advance(HOUR_S)
    with pytest.raises(TopicNotFoundError):
        house.broker.streams.get("s")


async def test_a_stream_is_not_deleted_while_a_record_of_it_is_on_its_way(house: House) -> None:
    await make_stream(house, WantedStream(ttl_s=HOUR_S))
    await house.clock.advance(HOUR_S - 1)
    house.journal.hold()
    appending = house.append("s", b"more")
    await house.clock.advance(2 * limits.STREAM_SWEEP_S)
    house.journal.release()
    await house.clock.advance(limits.STREAM_SWEEP_S)
    assert (await appending).offset == 1
    assert house.broker.streams.get("s").log_end_offset == 2


async def test_a_stream_is_there_for_readers_while_a_record_of_it_is_on_its_way(
    house: House,
) -> None:
    await make_stream(house, WantedStream(ttl_s=HOUR_S))
    house.journal.hold()
    appending = house.append("s", b"more")
    await house.clock.advance(2 * HOUR_S)
    assert house.broker.streams.get("s").log_end_offset == 1
    assert house.broker.streams.takes("s", "application/octet-stream")
    house.journal.release()
    await house.clock.advance(1)
    with contextlib.suppress(OutcomeUnknownError):  # the bucket took its time
        await appending
    assert house.broker.streams.get("s").log_end_offset == 2


async def test_nothing_is_stored_by_hand_in_a_stream_whose_time_is_up(house: House) -> None:
    await make_stream(house, WantedStream(ttl_s=1))
    await house.clock.advance(1)
    storing = house.broker.appends.admin_produce("s", NewRecords([b"late"]), THE_APPLIANCE)
    with pytest.raises(TopicNotFoundError):
        await house.done(storing)


async def test_who_waits_for_a_stream_that_was_made_anew_is_told_so(house: House) -> None:
    await make_stream(house, WantedStream())
    before = house.broker.streams.use("s")
    await house.done(house.broker.streams.delete("s", THE_APPLIANCE))
    await make_stream(house, WantedStream())
    with pytest.raises(TopicNotFoundError):
        await house.done(house.broker.streams.wait(before, before.log_end_offset, 1, OPERATOR))


async def test_an_append_to_a_stream_that_is_deleted_in_the_same_moment_is_not_told_as_refused(
    house: House,
) -> None:
    await make_stream(house, WantedStream())
    appended = asyncio.ensure_future(append_to_stream(house, b"gone"))
    await settle()
    await house.done(house.broker.streams.delete("s", THE_APPLIANCE))
    with pytest.raises(OutcomeUnknownError, match="deleted since"):
        await appended


async def test_a_stream_whose_time_is_up_is_deleted_and_costs_nothing_then(house: House) -> None:
    await make_stream(house, WantedStream(ttl_s=1))
    await make_stream(house, WantedStream(), "stays")
    for _ in range(3):
        await house.clock.advance(limits.STREAM_SWEEP_S)
    assert [topic.name for topic in house.broker.topics.all()] == ["stays"]
    assert house.clock.armed == 0
    entries = house.broker.counters.entries
    await house.clock.advance(HOUR_S)
    assert house.broker.counters.entries == entries


async def test_a_stream_that_is_over_before_it_is_stored_is_deleted(house: House) -> None:
    with pytest.raises(OutcomeUnknownError):
        await make_stream(house, WantedStream(expires_us=house.clock.wall_us() + 1))
    assert len(house.broker.topics.all()) == 1
    await house.clock.advance(2 * limits.STREAM_SWEEP_S)
    assert house.broker.topics.all() == []


async def test_a_path_is_free_at_once_when_its_streams_time_is_up(house: House) -> None:
    await make_stream(house, WantedStream("text/plain", ttl_s=1))
    await house.clock.advance(1)
    assert await make_stream(house, WantedStream("application/json"))
    assert house.broker.streams.get("s").state.content_type == "application/json"


async def test_uses_of_a_stream_cost_no_put(house: House) -> None:
    await make_stream(house, WantedStream(ttl_s=HOUR_S))
    entries = house.broker.counters.entries
    for _ in range(10):
        await house.clock.advance(HOUR_S / 2)
        house.broker.streams.use("s")
    assert house.broker.counters.entries == entries


async def test_nothing_is_acknowledged_that_would_go_with_a_stream_whose_time_is_up(
    house: House,
) -> None:
    await make_stream(house, WantedStream(ttl_s=1))
    await house.clock.advance(1)
    assert not house.broker.appends.append_nowait(ADMIN, "s", b"x", 1, Nobody())
    with pytest.raises(TopicNotFoundError):
        await house.appended("s", b"x")
    await house.clock.advance(limits.STREAM_SWEEP_S)
    assert (await house.appended("s", b"x")).offset == 0  # of a topic that is made for it


async def test_an_append_of_any_kind_is_a_use_of_a_stream(house: House) -> None:
    await make_stream(house, WantedStream(ttl_s=HOUR_S))
    await house.clock.advance(HOUR_S - 10)
    await house.appended("s", b"by the record API")
    await house.clock.advance(HOUR_S - 10)
    assert house.broker.appends.append_nowait(ADMIN, "s", b"by the fast lane", 1, Nobody())
    await house.clock.advance(HOUR_S - 10)
    assert house.broker.streams.get("s").log_end_offset == 3

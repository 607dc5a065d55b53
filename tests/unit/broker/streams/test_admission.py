"""Decisions about streams rest on everything that was admitted before."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.streams.admission import WantedFork, WantedStream
from seb_appliance.broker.values import Appended
from seb_appliance.errors import (
    StreamClosedError,
    StreamConflictError,
)
from seb_appliance.formats.topic_settings import TopicSettings
from tests.unit.broker.conftest import House, append_to_stream, make_stream

HOUR_S = 3_600


@pytest.mark.parametrize("wanted", [WantedStream(ttl_s=1), WantedStream(expires_us=1)])
async def test_a_topic_with_records_becomes_no_stream_that_expires(
    house: House, wanted: WantedStream
) -> None:
    await house.appended("s", b"older")
    with pytest.raises(StreamConflictError):
        await make_stream(house, wanted)
    await house.clock.advance(limits.STREAM_SWEEP_S + 2)
    assert await house.values("s") == [b"older"]
    await house.done(house.broker.topics.create("empty", TopicSettings()))
    assert await make_stream(house, WantedStream(ttl_s=1), "empty")


async def test_what_comes_with_a_stream_lies_behind_what_its_topic_holds(house: House) -> None:
    await house.appended("s", b"older")
    assert await make_stream(house, WantedStream())
    assert await house.values("s") == [b"older", b"first"]
    assert not await make_stream(house, WantedStream())  # asked again: it is there
    assert await house.values("s") == [b"older", b"first"]


async def test_a_fork_gets_no_beginning_of_a_record_of_a_stream_that_was_made_anew(
    house: House,
) -> None:
    await make_stream(house, WantedStream())
    deleting = asyncio.ensure_future(house.broker.topics.delete("s"))
    appending = house.append("s", b"another")
    fork = WantedStream(fork=WantedFork("s", 0, sub_offset=3))
    with pytest.raises(StreamConflictError):
        await make_stream(house, fork, "fork")
    await asyncio.gather(deleting, appending)
    await make_stream(house, fork, "fork")
    assert await house.values("fork") == [b"ano", b"first"]


async def test_the_beginning_of_a_record_that_a_fork_gets_counts_as_its_body(house: House) -> None:
    await house.appended("s", b"x" * 500_000)
    fork = WantedStream(fork=WantedFork("s", 0, sub_offset=400_000))
    making = asyncio.ensure_future(make_stream(house, fork, "fork"))
    async with asyncio.timeout(5):
        while house.broker.pending.used < 400_000:
            await asyncio.sleep(0)  # a thread reads the record
    await house.clock.advance(1)
    assert await making
    assert house.broker.pending.used == 0


async def test_a_closed_stream_knows_what_a_producer_stored_and_takes_no_more(house: House) -> None:
    await make_stream(house, WantedStream())

    def sent(seq: int) -> Coroutine[object, object, Appended]:
        conditions = Conditions(producer=ProducerStamp("p", 0, seq))
        return house.done(house.append("s", b"of p", conditions=conditions))

    first = await sent(0)
    await append_to_stream(house, b"end", close=True)
    again = await sent(0)
    assert (again.offset, again.count, again.replayed) == (first.offset, 1, True)
    for seq in (1, 2):  # the next one, and one past a hole
        with pytest.raises(StreamClosedError):
            await sent(seq)
    with pytest.raises(StreamClosedError):
        await house.done(house.append("s", b"of nobody"))


async def test_a_stream_that_is_closed_takes_no_record_by_any_door(house: House) -> None:
    await make_stream(house, WantedStream())
    await append_to_stream(house, b"last", close=True)
    for values in ([b"later"], [b"and", b"later"]):
        with pytest.raises(StreamClosedError) as refused:
            await house.appended("s", *values)
        assert refused.value.data["log_end_offset"] == 2
    assert house.broker.streams.get("s").log_end_offset == 2

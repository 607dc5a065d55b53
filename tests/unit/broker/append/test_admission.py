"""Decisions about topics rest on everything that was admitted before."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.errors import (
    BadRequestError,
    ForkRefusedError,
    ShuttingDownError,
)
from seb_appliance.formats.operations import TopicCompacted
from tests.unit.broker.conftest import House


async def test_timestamps_of_the_appliance_never_go_back(house: House) -> None:
    first = await house.appended("t", b"a")
    house.clock.wall_offset_us = -3600 * 1_000_000
    second = await house.appended("t", b"b")
    assert second.timestamp_us >= first.timestamp_us
    created = [e.entry.header.created_us for e in house.journal.entries]
    assert created == sorted(created)


async def test_there_are_not_more_topics_than_there_may_be(
    house: House,
) -> None:
    house.broker._writes.admission._shares.limit = 1
    await house.topic("one")
    with pytest.raises(BadRequestError, match="1 of 1 topics are in use"):
        await house.appended("two", b"a")


async def test_offsets_are_given_at_admission_before_anything_is_stored(house: House) -> None:
    house.journal.hold()
    first, second = house.append("t", b"a", b"b"), house.append("t", b"c")
    await house.clock.advance(1)
    known = house.broker._writes.admission.find("t")
    assert known is not None
    assert (known.next_offset, known.is_appended_to) == (3, True)
    house.journal.release()
    await house.clock.advance(1)
    assert [(await first).offset, (await second).offset] == [0, 2]
    assert not known.is_appended_to


async def test_a_topic_that_is_deleted_and_created_again_is_another_one(house: House) -> None:
    await house.filled("t", 2)
    admission = house.broker._writes.admission
    before = admission.find("t")
    deletion = asyncio.ensure_future(house.broker.topics.delete("t"))
    appended = house.append("t", b"a")
    await house.clock.advance(1)
    await deletion
    after = admission.find("t")
    assert before is not None
    assert after is not None
    assert after.topic_id > before.topic_id
    assert not admission.lives(before.topic_id)
    assert (await appended).offset == 0


async def test_a_refusal_remembers_no_window_that_is_done() -> None:
    window = Window()
    assert Refusal(ShuttingDownError("x"), window).after is window
    window.resolve(0.0)
    assert Refusal(ShuttingDownError("x"), window).after is None


async def test_a_clock_that_was_ahead_and_is_set_right_is_followed(house: House) -> None:
    house.clock.wall_offset_us = 40 * limits.CLOCK_JUMP_US_MAX
    ahead = await house.appended("t", b"a")
    house.clock.wall_offset_us = 0
    assert (await house.appended("t", b"b")).timestamp_us < ahead.timestamp_us


async def test_a_fork_cannot_begin_inside_what_compaction_has_gone_over(house: House) -> None:
    topic_id = await house.filled("t", 5)
    admission = house.broker._writes.admission
    assert admission.names() == {topic_id: "t"}
    event = TopicCompacted(topic_id=topic_id, base_offset=1, last_offset=3)
    gone = TopicCompacted(topic_id=99, base_offset=0, last_offset=1)
    window = Window()
    admission.admit_topic_compacted(window, "t", event)
    admission.admit_topic_compacted(window, "t", gone)  # another topic had this name
    window.resolve(0.0)
    for offset, is_inside in ((1, False), (2, True), (3, True), (4, False)):
        fork = house.broker.topics.fork(f"f{offset}", "t", offset)
        if is_inside:
            with pytest.raises(ForkRefusedError):
                await house.done(fork)
        else:
            await house.done(fork)

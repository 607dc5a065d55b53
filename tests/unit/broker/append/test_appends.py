"""Appends are admitted whole or refused whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    RecordTooLargeError,
    SebError,
    TopicNotFoundError,
)
from tests.support.fakes import settle
from tests.unit.broker.conftest import ADMIN, House


async def test_a_refused_append_leaves_no_topic_and_no_reservation(house: House) -> None:
    with pytest.raises(RecordTooLargeError):
        await house.append("new", b"x" * (1 << 20) + b"x")
    await house.clock.advance(10)
    assert house.broker.topics.all() == []
    assert house.journal.entries == []
    assert house.broker.pending.used == 0


class TestWithoutAutoCreate:
    @pytest.fixture
    def settings(self) -> BrokerSettings:
        return BrokerSettings(auto_create_topics=False)

    async def test_an_append_to_a_missing_topic_is_refused(self, house: House) -> None:
        with pytest.raises(TopicNotFoundError):
            await house.append("t", b"a")

    async def test_a_refusal_that_rests_on_a_pending_deletion_waits_for_it(
        self, house: House
    ) -> None:
        await house.topic("t")
        house.journal.hold()
        deletion = asyncio.ensure_future(house.broker.topics.delete("t"))
        await settle()
        refused = house.append("t", b"a")
        await house.clock.advance(1)
        assert not refused.done()
        house.journal.release()
        await house.clock.advance(1)
        await deletion
        with pytest.raises(TopicNotFoundError):
            await refused


class Heard:
    """One caller who waits."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None:
        self.told.append((admitted, window_s, put_s))

    def failed(self, error: SebError) -> None:
        self.told.append(type(error))


async def test_records_of_one_microsecond_keep_their_order_and_their_time(house: House) -> None:
    await house.topic("t")
    callers = [Heard(), Heard()]
    for heard in callers:
        assert house.broker.appends.append_nowait(ADMIN, "t", b"a", 1, heard)
    await house.clock.advance(1)
    assert [heard.told[0][0].offset for heard in callers] == [0, 1]


async def test_what_is_appended_at_once_waits_for_its_linger_and_no_longer(house: House) -> None:
    await house.topic("t", linger_ms=1_000)
    heard = Heard()
    assert house.broker.appends.append_nowait(ADMIN, "t", b"a", 1, heard)
    await house.clock.advance(0.9995)
    assert heard.told == []
    await house.clock.advance(0.0005)
    assert [admitted.offset for admitted, _, _ in heard.told] == [0]


async def test_a_record_that_is_too_long_is_left_to_who_says_why(house: House) -> None:
    await house.topic("t", max_record_bytes=3)
    heard = Heard()
    assert not house.broker.appends.append_nowait(ADMIN, "t", b"four", 4, heard)
    assert house.broker.appends.append_nowait(ADMIN, "t", b"one", 3, heard)
    await house.clock.advance(1)
    assert len(heard.told) == 1


async def test_a_null_needs_no_record_key(house: House) -> None:
    reservation = house.broker.pending.reserve(OPERATOR, 1)
    await house.done(house.broker.appends.append(ADMIN, "t", NewRecords([None]), reservation))
    assert await house.values("t") == [None]


async def test_records_of_several_topics_without_a_task_lie_in_one_entry(house: House) -> None:
    for name in ("a", "b"):
        await house.topic(name)
    entries = len(house.journal.entries)
    heard, records = Heard(), {"a": NewRecords([b"1"]), "b": NewRecords([b"2", b"3"])}
    assert house.broker.appends.transact_nowait(ADMIN, records, 10, heard)
    held_bytes = limits.PENDING_REQUEST_BYTES + 10 + 3 * limits.PENDING_RECORD_BYTES
    assert house.broker.pending.used == held_bytes
    await house.clock.advance(1)
    assert len(heard.told) == 1
    assert len(house.journal.entries) == entries + 1
    assert [await house.values(name) for name in ("a", "b")] == [[b"1"], [b"2", b"3"]]
    assert house.broker.pending.used == 0


async def test_of_several_topics_without_a_task_all_are_refused_for_one(house: House) -> None:
    await house.topic("a", max_record_bytes=3)
    heard, records = Heard(), {"b": NewRecords([b"one"]), "a": NewRecords([b"four"])}
    assert not house.broker.appends.transact_nowait(ADMIN, records, 7, heard)
    await house.clock.advance(1)
    assert (heard.told, await house.values("a"), house.broker.pending.used) == ([], [], 0)
    assert [topic.name for topic in house.broker.topics.all()] == ["a"]

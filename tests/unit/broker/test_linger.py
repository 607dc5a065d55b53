"""How long windows stay open for topics that set nothing, when that changes under way."""

from __future__ import annotations

import asyncio

from seb_appliance.formats.topic_settings import TopicSettings


async def test_a_stretched_window_holds_what_comes_meanwhile(house):
    house.broker.linger.default_ms = 5_000
    first = house.append("t", b"1")
    await house.clock.advance(4.9)
    second = house.append("t", b"2")
    await house.clock.advance(0.05)
    assert not first.done()
    await house.clock.advance(0.1)
    assert first.done()
    assert second.done()
    assert house.broker.counters.entries == 1
    assert house.broker.counters.open_seconds == 5.0
    assert house.broker.counters.writes == 2
    assert house.broker.topics.get("t").effective.linger_ms == 5_000


async def test_a_topic_with_a_linger_of_its_own_keeps_it(house):
    await house.topic("own", linger_ms=20)
    house.broker.linger.default_ms = 5_000
    appended = house.append("own", b"1")
    await house.clock.advance(0.03)
    assert appended.done()
    assert house.broker.topics.get("own").effective.linger_ms == 20


async def test_a_commit_waits_as_long_as_records_do(house):
    await house.filled("t", 3)
    house.broker.linger.default_ms = 5_000
    committing = house.committing("g", {"t": 2})
    await house.clock.advance(4)
    assert not committing.done()
    await house.clock.advance(1.1)
    await asyncio.wait_for(committing, 60)


async def test_an_operator_does_not_wait_for_a_stretched_window(house):
    house.broker.linger.default_ms = 5_000
    creating = asyncio.ensure_future(house.broker.topics.create("t", TopicSettings()))
    await house.clock.advance(0.06)
    assert creating.done()


async def test_an_entry_is_shared_by_its_topics_as_they_share_its_bytes(house):
    await house.topic("a")
    await house.topic("b")
    house.broker.counters.take_entry_shares()
    one, two = house.append("a", b"x" * 3_000), house.append("b", b"")
    await house.clock.advance(1)
    ids = (await one).topic_id, (await two).topic_id
    shares = house.broker.counters.take_entry_shares()
    assert shares.keys() == set(ids)
    assert sum(shares.values()) == 1.0
    assert house.broker.counters.take_entry_shares() == {}

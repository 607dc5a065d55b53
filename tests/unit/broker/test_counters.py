"""What the broker counts for others to take."""

from __future__ import annotations


async def test_what_came_into_each_topic_is_counted_until_it_is_taken(house):
    await house.topic("quiet")
    house.broker.counters.take_came_in()
    first, second = house.append("busy", b"1", b"2"), house.append("busy", b"x" * 1000)
    await house.clock.advance(1)
    topic_id = (await first).topic_id
    await second
    third = house.append("busy", b"4")
    await house.clock.advance(1)
    await third
    came_in = house.broker.counters.take_came_in()
    assert came_in.keys() == {topic_id}
    records, size_bytes = came_in[topic_id]
    assert records == 4
    assert size_bytes > 0
    assert house.broker.counters.take_came_in() == {}

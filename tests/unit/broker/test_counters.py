"""What the broker counts for others to take."""

from __future__ import annotations

import pytest

from seb_appliance.broker.counters import Latencies, percentile_s


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


@pytest.mark.parametrize("seconds", [0.0002, 0.0054, 0.038, 1.0, 30.0, 600.0])
def test_a_percentile_is_near_what_was_measured_and_not_below(seconds: float) -> None:
    latencies = Latencies()
    latencies.add(seconds)
    found = percentile_s(latencies.counts, 0.5)
    assert found is not None
    assert seconds <= found <= seconds * 1.19


def test_the_slow_ones_show_in_the_tail_only() -> None:
    latencies = Latencies()
    for _ in range(98):
        latencies.add(0.01)
    latencies.add(5.0)
    latencies.add(5.0)
    assert percentile_s(latencies.counts, 0.5) == pytest.approx(0.01, rel=0.2)
    assert percentile_s(latencies.counts, 0.99) == pytest.approx(5.0, rel=0.2)


def test_nothing_measured_has_no_percentile() -> None:
    assert percentile_s(Latencies().counts, 0.99) is None


def test_what_is_beyond_every_step_is_counted_all_the_same() -> None:
    latencies = Latencies()
    for seconds in (0.0, -1.0, 1e9):
        latencies.add(seconds)
    assert sum(latencies.counts) == 3

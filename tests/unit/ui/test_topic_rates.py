"""What comes into topics, a second, in the last sample."""

from __future__ import annotations

from seb_appliance.ui.history import TopicRate, TopicRates


def test_a_rate_is_of_the_last_sample_and_none_before_the_first() -> None:
    rates = TopicRates()
    assert rates.of(1) is None
    rates.add(15.0, {1: (30, 3000)})
    assert rates.of(1) == TopicRate(2.0, 200.0)
    assert rates.of(2) == TopicRate(0.0, 0.0)
    rates.add(10.0, {2: (5, 50)})
    assert rates.of(1) == TopicRate(0.0, 0.0)
    assert rates.of(2) == TopicRate(0.5, 5.0)


def test_the_busiest_come_first_and_the_idle_not_at_all() -> None:
    rates = TopicRates()
    rates.add(15.0, {1: (30, 0), 2: (0, 0), 3: (60, 0), 4: (1, 0)})
    assert rates.busiest(2) == [3, 1]
    assert rates.busiest(9) == [3, 1, 4]

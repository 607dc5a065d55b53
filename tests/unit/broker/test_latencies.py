"""Percentiles of what was only counted."""

from __future__ import annotations

import pytest

from seb_appliance.broker.counters import Latencies, percentile_s


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

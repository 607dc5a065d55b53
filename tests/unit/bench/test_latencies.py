"""Latencies become a curve of HDR precision, up to the largest one."""

from __future__ import annotations

import pytest

from seb_appliance.bench.meters import Latencies


def test_a_curve_tells_percentiles_to_three_digits_and_the_largest_one() -> None:
    latencies = Latencies()
    for microseconds in range(1, 100_001):
        latencies.add(microseconds / 1e6 + 1e-7)
    curve = latencies.curve()
    assert curve is not None
    told = dict(curve.at)
    assert list(told) == [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999, 100.0]
    for percentile, value_us in told.items():
        assert value_us == pytest.approx(percentile * 1_000, rel=0.001)
    assert curve.samples == 100_000
    assert curve.mean_us == pytest.approx(50_000, rel=0.001)
    assert curve.value_us(99.0) == told[99.0]


def test_one_slow_answer_of_many_is_seen_at_the_end_of_the_curve() -> None:
    latencies = Latencies()
    for _ in range(99_999):
        latencies.add(0.001)
    latencies.add(2.0)
    curve = latencies.curve()
    assert curve is not None
    assert dict(curve.at)[99.99] == pytest.approx(1_000, rel=0.001)
    assert curve.at[-1][1] == pytest.approx(2_000_000, rel=0.001)


def test_without_a_sample_there_is_no_curve() -> None:
    assert Latencies().curve() is None

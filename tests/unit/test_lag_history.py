"""How far groups were behind: a bounded number of samples of each pair of group and topic."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.ui.history import LagHistory


def test_a_pair_that_came_later_begins_later() -> None:
    history = LagHistory()
    history.add(1, {("a", 1): 10})
    history.add(2, {("a", 1): 11, ("b", 1): 20})
    assert history.of("a", 1) == [(1, 10.0), (2, 11.0)]
    assert history.of("b", 1) == [(2, 20.0)]


def test_a_pair_that_is_gone_is_forgotten() -> None:
    history = LagHistory()
    history.add(1, {("a", 1): 10})
    history.add(2, {})
    history.add(3, {("a", 1): 12})
    assert history.of("a", 1) == [(3, 12.0)]
    assert history.of("nobody", 1) == []


def test_only_the_newest_samples_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_SAMPLES_KEPT", 2)
    history = LagHistory()
    for at_us in (1, 2, 3):
        history.add(at_us, {("a", 1): at_us})
    assert history.of("a", 1) == [(2, 2.0), (3, 3.0)]


def test_the_furthest_behind_come_first_and_who_is_not_behind_not_at_all() -> None:
    history = LagHistory()
    history.add(1, {("a", 1): 900, ("b", 1): 5, ("c", 1): 7})
    history.add(2, {("a", 1): 0, ("b", 1): 6, ("c", 1): 7})
    assert history.largest(9) == [(7, ("c", 1)), (6, ("b", 1))]
    assert history.largest(1) == [(7, ("c", 1))]


def test_a_lag_that_grows_in_each_quarter_of_an_hour_is_told() -> None:
    history, least = LagHistory(), 1_000
    for number in range(limits.LAG_SAMPLES_KEPT // 2):
        lags = {("grows", 1): least + number, ("grows", 2): 2 * least + number}
        lags |= {("small", 1): number, ("falls", 1): 3 * least - number, ("stays", 1): 3 * least}
        history.add(number, lags)
        assert history.growing(9, least) == [] or number == limits.LAG_SAMPLES_KEPT // 2 - 1
    last = limits.LAG_SAMPLES_KEPT // 2 - 1
    first = (2 * least + last, ("grows", 2))
    assert history.growing(9, least) == [first, (least + last, ("grows", 1))]
    assert history.growing(1, least) == [first]

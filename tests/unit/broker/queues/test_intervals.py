"""Sets of numbers as ranges agree with Python's own sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.broker.queues.due import DueTimes
from seb_appliance.broker.queues.intervals import Intervals

RANGE = st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda it: (it[0], it[0] + it[1]))


@given(st.lists(RANGE, max_size=30))
def test_ranges_that_are_added_are_the_set_of_their_numbers(ranges: list[tuple[int, int]]):
    known, held = set[int](), Intervals()
    for begin, end in ranges:
        new = set(range(begin, end)) - known
        assert held.add(begin, end) == len(new)
        known |= new
    assert {n for begin, end in held for n in range(begin, end)} == known
    assert held.count == len(known)
    assert all(n in held for n in known)
    assert all(n not in held for n in set(range(80)) - known)


@given(st.lists(RANGE, max_size=30))
def test_ranges_never_touch_and_ascend(ranges: list[tuple[int, int]]):
    held = list(Intervals(ranges))
    assert all(begin < end for begin, end in held)
    assert all(before[1] < after[0] for before, after in pairwise(held))
    assert len(Intervals(ranges)) == len(held)


@given(st.lists(RANGE, max_size=30), RANGE)
def test_gaps_are_the_numbers_that_are_missing(
    ranges: list[tuple[int, int]], looked: tuple[int, int]
):
    held = Intervals(ranges)
    gaps = list(held.gaps(*looked))
    missing = {n for n in range(*looked) if n not in held}
    assert {n for begin, end in gaps for n in range(begin, end)} == missing
    assert held.gap(*looked) == (gaps[0] if gaps else None)


def test_ten_thousand_ranges_take_little_memory():
    held = Intervals((n, n + 1) for n in range(0, 20_000, 2))
    assert len(held) == 10_000
    assert sum(part.itemsize * len(part) for part in (held._begins, held._ends)) == 160_000


def test_what_is_added_comes_due_in_time_and_once():
    times = DueTimes[str]()
    times.add("b", 2.0)
    times.add("a", 1.04)
    times.add("gone", 1.0)
    times.remove("gone", 1.0)
    assert times.next_s == 1.1
    assert list(times.due(1.04)) == []  # up to a tenth of a second late, never early
    assert list(times.due(1.1)) == ["a"]
    assert list(times.due(5.0)) == ["b"]
    assert times.next_s is None


def test_what_is_added_while_others_come_due_comes_due_as_well():
    times = DueTimes[str]()
    times.add("late", 3.0)
    found = []
    for thing in times.due(4.0):
        found.append(thing)
        if thing == "late":
            times.add("earlier", 1.0)
    assert found == ["late", "earlier"]

"""Shares of a common resource: nobody can take all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.broker.shares import OPERATOR, ForgettingShares, Shares
from seb_appliance.errors import OverloadedError, ShareExceededError


def test_one_greedy_owner_gets_half_and_the_next_still_finds_room() -> None:
    shares = Shares("tests", 100, "places")
    shares.take("greedy", 50)
    with pytest.raises(ShareExceededError) as refused:
        shares.take("greedy", 1)
    assert refused.value.data == {"share": "tests", "held": 50, "limit": 100}
    shares.take("other", 25)
    assert (shares.used, shares.largest()) == (75, ("greedy", 50))


def test_an_operator_uses_all_that_is_free_and_nobody_more() -> None:
    shares = Shares("tests", 100, "places")
    shares.take("greedy", 50)
    shares.take(OPERATOR, 50)
    with pytest.raises(OverloadedError):
        shares.take(OPERATOR, 1)
    assert shares.refusals == 1


def test_what_is_given_back_can_be_taken_again() -> None:
    shares = Shares("tests", 10, "places")
    shares.take("one", 5)
    shares.give_back("one", 5)
    assert (shares.used, shares.largest()) == (0, (OPERATOR, 0))
    shares.take("one", 5)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 40))))
def test_what_an_owner_takes_leaves_at_least_as_much_free(takes: list[tuple[str, int]]) -> None:
    shares = Shares("tests", 100, "places")
    for owner, amount in takes:
        try:
            shares.take(owner, amount)
        except (ShareExceededError, OverloadedError):
            continue
        assert shares.held_by(owner) <= shares.limit - shares.used


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 9))))
def test_the_largest_holder_loses_until_there_is_room(takes: list[tuple[str, int]]) -> None:
    shares, rows = ForgettingShares("tests", 20, "places"), []
    for owner, amount in takes:
        shares.take_anyway(owner, amount)
        rows.append((owner, amount))
        for loser in shares.losers():
            held = {name: sum(n for of, n in rows if of == name) for name, _ in rows}
            assert (loser is None) == (max(held.values()) == 1)
            if loser is not None:
                assert loser == min(name for name in held if held[name] == max(held.values()))
            gone = next(row for row in rows if loser in (None, row[0]))
            rows.remove(gone)
            shares.give_back(*gone)
        assert shares.used == sum(n for _, n in rows) <= 20


def test_many_small_takes_and_losses_cost_little() -> None:
    shares, looked_at = ForgettingShares("tests", 1_000, "places"), 0
    for owner in range(500):
        shares.take_anyway(str(owner), 1)
    for _ in range(5_000):
        shares.take_anyway("greedy", 1)
        for loser in shares.losers():
            shares.give_back(loser or "greedy", 1)
            looked_at += 1
        assert len(shares._heap) <= 2 * len(shares._held) + 65
    assert looked_at <= 5_000

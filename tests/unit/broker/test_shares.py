"""Shares of a common resource: nobody can take all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.broker.shares import OPERATOR, Shares
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
    assert (shares.refusals, shares.share_refusals) == (1, 0)


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

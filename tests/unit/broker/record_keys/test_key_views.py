"""Views of the latest records: how long the index keeps superseded records for them."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.record_keys.indexing import KeyViews
from seb_appliance.broker.shares import AllShares
from seb_appliance.errors import BadParameterError
from tests.support.fakes import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def views(clock: FakeClock) -> KeyViews:
    return KeyViews(clock, AllShares())


async def test_records_are_kept_below_the_newest_view_of_a_topic(views: KeyViews) -> None:
    views.begin(1, 10, "a")
    views.begin(1, 30, "b")
    views.begin(2, 5, "a")
    assert views.kept_below() == {1: 30, 2: 5}


async def test_a_view_ends_when_it_was_idle_and_lives_while_it_is_used(
    views: KeyViews, clock: FakeClock
) -> None:
    views.begin(1, 10, "a")
    for _ in range(3):
        await clock.advance(limits.KEY_VIEW_IDLE_S - 1)
        views.go_on(1, 10)
    assert not views.ended(1)
    await clock.advance(limits.KEY_VIEW_IDLE_S)
    with pytest.raises(BadParameterError, match="view of this cursor has ended"):
        views.go_on(1, 10)
    assert views.ended(1)
    assert not views.ended(1)  # it is reported once


async def test_an_index_that_begins_again_ends_the_views_of_its_topic_only(views: KeyViews) -> None:
    views.begin(1, 10, "a")
    views.begin(2, 10, "a")
    views.end(1)
    assert not views.is_in_use(1, 10)
    assert views.is_in_use(2, 10)
    assert views.ends == 1

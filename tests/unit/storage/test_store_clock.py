"""Which of three clocks is believed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from seb_appliance import limits
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.store_clock import StoreClock
from tests.support.fakes import START_US, FakeClock
from tests.support.faulty_store import FaultyStore

DAY_S = 86_400


@dataclass
class Place:
    """`true_us`: the time as it is."""

    ours: FakeClock
    store: FaultyStore
    clock: StoreClock

    @property
    def true_us(self) -> int:
        return self.ours.wall_us() - self.ours.wall_offset_us

    def tell(self, wrong_s: float = 0.0) -> None:
        """The store answers, with a Date that is off by so much."""
        self.store.date_ahead_s = self.true_us / 1e6 + wrong_s - self.ours.monotonic_s()

    def is_right(self) -> bool:
        return abs(self.clock.wall_us() - self.true_us) <= 1


@pytest.fixture
def place() -> Place:
    ours, store = FakeClock(), FaultyStore(MemoryStore())
    return Place(ours, store, StoreClock(ours, store))


def test_a_store_without_a_date_changes_nothing(place: Place) -> None:
    place.ours.wall_offset_us = DAY_S * 1_000_000
    assert place.clock.wall_us() == place.ours.wall_us()


def test_a_clock_that_is_wrong_from_the_beginning_is_set_by_the_store(place: Place) -> None:
    place.ours.wall_offset_us = -START_US  # 1970
    place.tell()
    assert place.is_right()


def test_the_step_of_a_clock_that_is_set_right_is_not_added_to_the_date(place: Place) -> None:
    """The Date was noted while our clock was a day behind."""
    place.ours.wall_offset_us = -DAY_S * 1_000_000
    place.tell()
    assert place.is_right()
    place.ours.wall_offset_us = 0
    assert place.is_right()


@pytest.mark.parametrize("wrong_s", [-DAY_S, 3600, 400 * DAY_S])
async def test_of_two_clocks_the_one_that_jumped_is_not_believed(
    place: Place, wrong_s: int
) -> None:
    place.tell()
    assert place.is_right()
    place.ours.wall_offset_us = wrong_s * 1_000_000
    await place.ours.advance(10)
    assert place.is_right()
    place.ours.wall_offset_us = 0
    place.tell(wrong_s)
    await place.ours.advance(10)
    assert place.is_right()
    assert place.clock.dates_refused == 0


@pytest.mark.parametrize("year", [1970, 1999, 2256, 9999])
def test_a_date_that_cannot_be_right_is_refused_and_counted(place: Place, year: int) -> None:
    place.tell((year - 2027) * 365.25 * DAY_S)
    assert place.is_right()
    assert place.clock.dates_refused == 1


@pytest.mark.parametrize("wall_us", [-5, 253_402_300_800_000_000])
def test_a_wall_clock_never_tells_what_cannot_be_stored(place: Place, wall_us: int) -> None:
    place.ours.wall_offset_us = wall_us - START_US
    assert 0 <= place.clock.wall_us() <= limits.TIME_US_MAX


def test_who_starts_with_two_clocks_that_differ_is_told_which_one_counts(place: Place) -> None:
    assert place.clock.warnings() == []
    place.tell(wrong_s=-2 * DAY_S)
    (told,) = place.clock.warnings()
    assert "48.0 h behind" in told
    assert "That of the store is believed" in told


def test_who_looks_after_a_jump_of_the_store_is_told_that_ours_counts(place: Place) -> None:
    place.tell()
    place.clock.wall_us()
    assert place.clock.warnings() == []
    place.tell(wrong_s=2 * DAY_S)
    (told,) = place.clock.warnings()
    assert "48.0 h ahead of" in told
    assert "That of the machine is believed" in told

"""Samples: what happened between two readings, each 15 s, for a day, and coarser for a month."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.broker.counters import Latencies
from seb_appliance.ops.jobs.history_job import HistoryKeeper, Reading
from seb_appliance.state.local import LocalFile
from seb_appliance.tasks import Supervisor
from seb_appliance.ui.history import Sample
from tests.support.fakes import FakeClock, settle

NOTHING = Reading(0, 0, 0, 0, 0, 0, 0, tuple(Latencies().counts), 0)
STEP_US = limits.SAMPLE_EVERY_S * 1_000_000
HOUR_US = 3_600_000_000
DAY_STEPS = 24 * 3600 // limits.SAMPLE_EVERY_S
SAMPLE = Sample(0, 15.0, 1, 100, 1, 0, 0, 0, 1, 0.1, 0.2, 100)


def at(at_us: int, records_in: int = 1) -> Sample:
    return msgspec.structs.replace(SAMPLE, at_us=at_us, records_in=records_in)


def everything(house: House, clock: FakeClock | None = None) -> list[Sample]:
    """The fine samples of the last hour."""
    now_us = (clock or house.clock).wall_us()
    return house.keeper.history.between(now_us - HOUR_US, now_us)


class House:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.reading = NOTHING
        self.keeper = HistoryKeeper(self._read, self.clock, path)

    async def _read(self) -> Reading:
        return self.reading


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path / "local.sqlite")
    made.keeper.start(Supervisor(made.clock))
    await settle()
    yield made
    await made.keeper.close()


async def test_a_sample_tells_what_happened_since_the_one_before(house: House) -> None:
    puts = Latencies()
    puts.add(0.01)
    house.reading = replace(NOTHING, records_in=30, bytes_in=300, puts=tuple(puts.counts))
    await house.clock.advance(limits.SAMPLE_EVERY_S)
    house.reading = replace(house.reading, records_in=40, size_bytes=7)
    await house.clock.advance(limits.SAMPLE_EVERY_S)
    first, second = everything(house)
    assert (first.records_in, first.bytes_in, first.seconds) == (30, 300, 15.0)
    assert first.put_p50_s == pytest.approx(0.01, rel=0.2)
    assert (second.records_in, second.bytes_in, second.size_bytes) == (10, 0, 7)
    assert second.put_p99_s is None
    assert second.at_us - first.at_us == 15_000_000


async def test_what_came_into_each_topic_is_of_the_last_sample(house: House) -> None:
    assert house.keeper.rates.of(7) is None
    house.reading = replace(NOTHING, came_in={7: (30, 1500)})
    await house.clock.advance(limits.SAMPLE_EVERY_S)
    rate = house.keeper.rates.of(7)
    assert rate is not None
    assert (rate.records, rate.bytes) == (2.0, 100.0)


async def test_a_day_of_fine_samples_is_kept_and_a_month_of_coarse_ones(house: House) -> None:
    history, begin_us = house.keeper.history, 1_000_000 * STEP_US
    for number in range(2 * DAY_STEPS):
        history.add(at(begin_us + number * STEP_US))
    now_us = begin_us + (2 * DAY_STEPS - 1) * STEP_US
    day = history.between(now_us - 24 * HOUR_US, now_us)
    assert [later.at_us - sample.at_us for sample, later in pairwise(day)] == [STEP_US] * (
        DAY_STEPS - 1
    )
    month = history.between(now_us - 720 * HOUR_US, now_us)
    assert 2 * 96 <= len(month) <= 2 * 96 + 1
    assert sum(sample.records_in for sample in month) == 2 * DAY_STEPS
    assert max(sample.put_p99_s or 0 for sample in month) == 0.2
    assert len(history.unsaved()) <= limits.SAMPLES_KEPT + limits.COARSE_SAMPLES_KEPT


async def test_samples_of_a_wrong_clock_are_not_shown_and_replaced_when_their_time_has_come(
    house: House,
) -> None:
    history, begin_us = house.keeper.history, 1_000_000 * STEP_US
    right = [begin_us + number * STEP_US for number in range(4)]
    wrong = [right[1] + 241 * HOUR_US, right[1] - 400_001 * HOUR_US]
    for at_us in (*right[:2], *wrong, *right[2:]):
        history.add(at(at_us))
    found = history.between(right[0] - STEP_US, right[-1])
    assert [sample.at_us for sample in found] == right
    then_us = wrong[0] + 1  # the wrong clock showed this time ten days ago
    history.add(at(then_us, records_in=7))
    (sample,) = history.between(wrong[0] - 1, then_us)
    assert sample.records_in == 7
    assert len(history.unsaved()) <= 2 * 7


async def test_samples_survive_a_restart_and_an_idle_appliance_writes_nothing(
    house: House, tmp_path: Path
) -> None:
    path = tmp_path / "local.sqlite"
    for _ in range(int(limits.SAMPLES_SAVED_EVERY_S) // limits.SAMPLE_EVERY_S + 1):
        await house.clock.advance(limits.SAMPLE_EVERY_S)
    assert not path.exists()
    house.reading = replace(NOTHING, entries=3, records_in=30)
    await house.clock.advance(limits.SAMPLE_EVERY_S)
    before = everything(house)
    assert len(before) == 6
    await house.keeper.close()
    again = House(path)
    await again.keeper.load()
    assert everything(again, house.clock) == before
    assert again.keeper.history.unsaved() == []
    path.write_bytes(b"damaged")
    fresh = House(path)
    await fresh.keeper.load()
    assert everything(fresh, house.clock) == []
    await house.keeper._file.save_samples([(15, 1, b"of another release")])
    other = House(path)
    await other.keeper.load()
    assert everything(other, house.clock) == []


async def test_samples_are_saved_every_minute(house: House, tmp_path: Path) -> None:
    house.reading = replace(NOTHING, entries=3, records_in=30)
    path = tmp_path / "local.sqlite"
    await house.clock.advance(limits.SAMPLES_SAVED_EVERY_S - 1)
    assert await LocalFile(path).load_samples() == []
    for _ in range(50):  # the writing is a thread's work
        await house.clock.advance(limits.SAMPLE_EVERY_S)
        if len(await LocalFile(path).load_samples()) >= 5:
            break
    killed = House(path)
    await killed.keeper.load()
    found = everything(killed, house.clock)
    assert len(found) >= 4
    assert found == everything(house)[: len(found)]

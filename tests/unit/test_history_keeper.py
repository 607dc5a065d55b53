"""Samples: what happened between two readings, each 15 s, for a day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.counters import Latencies
from seb_appliance.ops.jobs.history_job import HistoryKeeper, Reading
from seb_appliance.tasks import Supervisor
from tests.support.fakes import FakeClock, settle

NOTHING = Reading(0, 0, 0, 0, 0, 0, 0, tuple(Latencies().counts), 0)


class House:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.reading = NOTHING
        self.keeper = HistoryKeeper(lambda: self.reading, self.clock, path)


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
    first, second = house.keeper.history.since(0)
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


async def test_a_day_is_kept_and_no_more(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        await house.clock.advance(limits.SAMPLE_EVERY_S)
    samples = house.keeper.history.since(0)
    assert len(samples) == 5
    assert house.keeper.history.since(samples[2].at_us) == samples[3:]
    assert limits.SAMPLES_KEPT * limits.SAMPLE_EVERY_S == 24 * 3600


async def test_a_day_survives_a_restart_and_an_idle_appliance_writes_nothing(
    house: House, tmp_path: Path
) -> None:
    path = tmp_path / "local.sqlite"
    for _ in range(int(limits.SAMPLES_SAVED_EVERY_S) // limits.SAMPLE_EVERY_S + 1):
        await house.clock.advance(limits.SAMPLE_EVERY_S)
    assert not path.exists()
    house.reading = replace(NOTHING, entries=3, records_in=30)
    await house.clock.advance(limits.SAMPLE_EVERY_S)
    before = house.keeper.history.since(0)
    await house.keeper.close()
    again = House(path)
    await again.keeper.load()
    assert again.keeper.history.since(0) == before
    path.write_bytes(b"damaged")
    fresh = House(path)
    await fresh.keeper.load()
    assert fresh.keeper.history.since(0) == []

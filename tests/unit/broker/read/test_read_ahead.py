"""Reading ahead, over a bucket that is 50 ms away by a clock that only the test moves."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from seb_appliance.broker.read import reads as read_ahead
from seb_appliance.broker.read import sections
from seb_appliance.broker.values import From, ReadRequest
from tests.support.fakes import settle
from tests.unit.broker.conftest import House

DELAY_S = 0.05
SECTIONS = 60
RECORDS = 4  # in each section


@pytest.fixture
async def cold(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """A house whose topic t has old records: each section costs a trip to the bucket."""
    for n in range(SECTIONS):
        await house.appended("t", *(f"{n}-{i}".encode() * 200 for i in range(RECORDS)))
    house.source.pause = partial(house.clock.sleep, DELAY_S)
    monkeypatch.setattr(sections, "KEPT_BYTES", 200_000)
    return house


async def read(house: House, offset: int, **limits: int) -> int:
    """One read, with the time it takes; where the next one goes on."""
    request = ReadRequest(From(offset=offset), **limits)
    task = asyncio.ensure_future(house.broker.read("t", request))
    await settle()
    while not task.done():
        await house.clock.advance(DELAY_S / 5)
    result = await task
    found = [
        value
        for piece in result.slices
        for value in piece.batch.columns.values.slice(piece.begin, piece.end)
    ]
    numbers = range(offset, result.next_offset)
    assert found == [f"{n // RECORDS}-{n % RECORDS}".encode() * 200 for n in numbers]
    return result.next_offset


async def read_all(house: House, **limits: int) -> float:
    """Seconds for all records, one section after another."""
    began_s, offset = house.clock.now_s, 0
    while offset < SECTIONS * RECORDS:
        offset = await read(house, offset, max_records=RECORDS, **limits)
    return house.clock.now_s - began_s


async def test_a_sequential_reader_of_old_records_is_many_times_faster(
    cold: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_read_ahead_s = await read_all(cold)
    assert cold.source.reads == SECTIONS, "nothing is fetched twice, or beyond the end"
    assert 0 < cold.broker.counters.fetched_ahead < SECTIONS
    cold.broker._reads._sections._kept.clear()
    monkeypatch.setattr(read_ahead.ReadAhead, "moved", lambda *_, **__: None)
    without_s = await read_all(cold)
    assert without_s > (SECTIONS - 1) * DELAY_S
    assert with_read_ahead_s < without_s / 5


async def test_one_large_answer_is_fetched_at_one_time(cold: House) -> None:
    began_s = cold.clock.now_s
    assert await read(cold, 0, max_records=40 * RECORDS) == 40 * RECORDS
    trips = 40 / sections.FETCHED_AHEAD_MAX
    assert cold.clock.now_s - began_s <= (trips + 2) * DELAY_S
    assert cold.source.reads == 40


async def test_a_reader_that_jumps_about_fetches_only_what_it_asks_for(cold: House) -> None:
    for section in (3, 40, 7, 25, 12, 55, 1):
        await read(cold, section * RECORDS, max_records=RECORDS)
    assert cold.source.reads == 7
    assert cold.broker.counters.fetched_ahead == 0


async def test_a_reader_of_what_is_in_memory_reads_nothing_ahead(cold: House) -> None:
    cold.source.in_memory = True
    await read_all(cold)
    assert (cold.source.reads, cold.broker.counters.fetched_ahead) == (0, 0)


async def test_what_is_read_ahead_is_bounded(cold: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "DEPTH_BYTES_FIRST", 1)
    monkeypatch.setattr(read_ahead, "SECTIONS_MAX", 3)
    offset = 0
    for reads in range(1, 6):
        offset = await read(cold, offset, max_records=RECORDS)
        await cold.clock.advance(1)
        assert cold.source.reads <= reads + 3


async def test_a_reader_that_came_no_more_is_forgotten(cold: House) -> None:
    offset = await read(cold, 0, max_records=RECORDS)
    await cold.clock.advance(read_ahead.FORGOTTEN_AFTER_S)
    await read(cold, 100, max_records=RECORDS)
    await read(cold, offset, max_records=RECORDS)
    assert cold.broker.counters.fetched_ahead == 0


async def test_a_fetch_ahead_that_fails_is_tried_again_by_its_reader(cold: House) -> None:
    offset = await read(cold, 0, max_records=RECORDS)
    offset = await read(cold, offset, max_records=RECORDS)
    cold.source.away = True
    await cold.clock.advance(1)
    cold.source.away = False
    assert cold.broker.counters.fetched_ahead > 0
    while offset < SECTIONS * RECORDS:
        offset = await read(cold, offset, max_records=RECORDS)

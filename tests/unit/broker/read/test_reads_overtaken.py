"""Reads that something overtakes between finding where a record lies and reading it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import OffsetExpiredError
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.tidied import Place

Amid = Callable[[str, Callable[[], Awaitable[None]]], None]


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    """Topic `t` has 40 records, of which most are found by pages only."""
    monkeypatch.setattr(limits, "INDEX_PAGE_ENTRIES", 8)
    monkeypatch.setattr(limits, "RETENTION_EVERY_S", -1.0)
    place = Place(tmp_path)
    await place.start()
    await place.produce("t", 40)
    await place.restart()
    yield place
    await place.appliance.close()


@pytest.fixture
def amid(place: Place, monkeypatch: pytest.MonkeyPatch) -> Amid:
    """Let something happen, once, while a page is looked up: by offset or by time."""

    def do(lookup: str, something: Callable[[], Awaitable[None]]) -> None:
        state = place.broker._state
        found, done = getattr(state, lookup), []

        async def find(*arguments: int) -> Any:
            if not done:
                done.append(lookup)
                await something()
            return await found(*arguments)

        monkeypatch.setattr(state, lookup, find)

    return do


async def merged(place: Place) -> None:
    """All is merged, and SQLite has dropped the pages of it."""
    await place.tidy()
    await place.produce("other", 20)
    await place.broker._state.drain()


async def trimmed(place: Place, offset: int) -> None:
    await place.broker.topics.trim("t", offset)
    await place.produce("other", 20)
    await place.broker._state.drain()


async def test_a_page_may_go_while_it_is_looked_up(place: Place, amid: Amid) -> None:
    amid("index_page", lambda: merged(place))
    values = await place.values("t")
    assert [value.split()[0] for value in values if value] == [b"%d" % n for n in range(40)]


async def test_who_reads_what_is_trimmed_meanwhile_is_told_so(place: Place, amid: Amid) -> None:
    amid("index_page", lambda: trimmed(place, 30))
    with pytest.raises(OffsetExpiredError):
        await place.broker.read("t", ReadRequest(From(offset=0)))


async def test_a_time_is_found_though_its_page_goes_meanwhile(place: Place, amid: Amid) -> None:
    await place.produce("large", 40, size=20_000)  # too much for one batch
    await place.restart()
    result = await place.broker.read("large", ReadRequest(From(offset=10)))
    time_us = int(result.slices[0].batch.columns.timestamps_us[0])
    amid("index_page_at", lambda: merged(place))
    found = await place.broker.read("large", ReadRequest(From(timestamp_us=time_us)))
    piece = found.slices[0]
    assert piece.batch.offsets()[piece.begin] == 10


async def test_a_read_by_time_of_what_is_trimmed_meanwhile_finds_the_end(
    place: Place, amid: Amid
) -> None:
    amid("index_page_at", lambda: trimmed(place, 40))
    result = await place.broker.read("t", ReadRequest(From(timestamp_us=1)))
    assert (result.slices, result.next_offset) == ([], 40)


async def test_retention_bears_a_trim_while_it_counts(place: Place, amid: Amid) -> None:
    await place.tidy()
    await place.produce("t", 40)
    await place.broker.topics.fork("fork", "t", 70, TopicSettings(retention_bytes=100))
    await place.restart()

    async def both_trimmed() -> None:
        await place.broker.topics.trim("fork", 65)
        await place.broker.topics.trim("t", 65)

    amid("index_page", both_trimmed)
    await place.broker.tidying.retain()
    assert place.broker.topics.get("fork").log_start_offset >= 65


async def test_what_is_trimmed_while_it_is_measured_is_measured_anew(
    place: Place, amid: Amid
) -> None:
    """It is measured after a switch, which is in force whatever comes of that."""
    amid("index_page", lambda: trimmed(place, 30))
    await place.broker.tidying.measure()
    left = place.broker._catalog.topic("t").size_bytes
    await place.broker.tidying.measure()
    assert left == place.broker._catalog.topic("t").size_bytes


async def test_what_is_deleted_while_it_is_measured_is_no_failure(place: Place, amid: Amid) -> None:
    async def deleted() -> None:
        await place.broker.topics.delete("t")

    amid("index_page", deleted)
    await place.broker.tidying.measure()


async def lag(place: Place) -> tuple[int, int]:
    """Of the group `g`, which stands at offset 5: records, and bytes."""
    commit = Commit("g", {"t": 5})
    await place.broker.groups.commit(commit, place.broker.pending.reserve(OPERATOR, 1))
    view = await place.broker.groups.describe("g", lambda *_: True, everybody)
    return view.topics[0].lag.records, view.topics[0].lag.bytes


async def test_a_group_is_shown_though_all_that_it_has_to_read_was_trimmed(place: Place) -> None:
    await place.broker.topics.trim("t", 40)
    assert await lag(place) == (35, 0)


@pytest.mark.parametrize("offset", [30, 40])
async def test_a_group_is_shown_though_a_trim_overtakes_its_figures(
    place: Place, amid: Amid, offset: int
) -> None:
    amid("index_page", lambda: trimmed(place, offset))
    found = await lag(place)
    assert found[0] == 35
    assert found == await lag(place)


async def test_a_group_is_shown_though_merging_and_a_trim_overtake_its_figures(
    place: Place, amid: Amid
) -> None:
    async def both() -> None:
        await place.broker.topics.trim("t", 39)
        await merged(place)
        await place.broker.topics.trim("t", 40)

    amid("index_page", both)
    assert await lag(place) == (35, 0)


async def test_retention_that_is_switched_off_while_it_counts_takes_nothing(
    place: Place, amid: Amid
) -> None:
    """Who was told that nothing goes any more loses nothing by what was asked for before."""
    await place.broker.topics.change("t", {"retention_bytes": 100})

    async def switched_off() -> None:
        await place.broker.topics.change("t", {"retention_bytes": None})

    amid("index_page", switched_off)
    assert await place.broker.tidying.retain() == 0
    assert len(await place.values("t")) == 40

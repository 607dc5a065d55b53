"""The applied state: what entries change, and what a restart loads again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.errors import TopicHeldError, TopicNotFoundError
from tests.support.tidied import Place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    await place.start()
    yield place
    await place.appliance.close()


def catalog(place: Place) -> Catalog:
    return place.broker._catalog


def topics(place: Place) -> list[tuple[object, ...]]:
    return [
        (t.name, t.topic_id, t.log_start_offset, t.log_end_offset, t.size_bytes, t.fork_offset)
        for t in catalog(place).topics()
    ]


async def test_a_restart_loads_what_the_entries_changed(place: Place) -> None:
    await place.produce("a", 10)
    await place.produce("b", 10)
    await place.broker.topics.trim("a", 4)
    await place.broker.topics.fork("c", "b", 7)
    await place.tidy()
    await place.produce("a", 3)
    before, totals = topics(place), await catalog(place).totals()
    await place.restart()
    assert topics(place) == before
    assert await catalog(place).totals() == totals
    assert totals.topics == 3


async def test_the_name_of_a_deleted_topic_is_held_until_its_last_fork_is_deleted(
    place: Place,
) -> None:
    await place.produce("base", 5)
    await place.broker.topics.fork("fork", "base")
    base = catalog(place).topic("base")
    await place.broker.topics.delete("base")
    with pytest.raises(TopicHeldError):
        catalog(place).topic("base")
    assert catalog(place).find_id(base.topic_id) is None
    assert catalog(place).find_rows(base.topic_id) is base
    await place.broker.topics.delete("fork")
    with pytest.raises(TopicNotFoundError) as caught:
        catalog(place).topic("base")
    assert not isinstance(caught.value, TopicHeldError)
    assert catalog(place).find_rows(base.topic_id) is None
    assert base.purged


async def test_each_section_names_the_object_that_holds_it(place: Place) -> None:
    await place.produce("t", 5)
    topic = catalog(place).topic("t")
    entry = catalog(place).section_ref(topic, topic.index, 0)
    assert (entry.base_offset, entry.entry.seq > 0) == (0, True)
    await place.tidy()
    assert len(topic.index) == 0
    merged = catalog(place).section_ref(topic, topic.stored, 0)
    assert (merged.base_offset, merged.last_offset, merged.entry.seq < 0) == (0, 4, True)

"""Questions to the key index of a topic that it begins anew meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.record_keys.indexing import IndexedTopic, KeyOffsets, KeyRows
from seb_appliance.broker.record_keys.queries import ViewPage
from seb_appliance.errors import OverloadedError
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.tidied import Place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Topic `t` has the record keys a, b and c, all of them in its index."""
    place = Place(tmp_path)
    await place.start()
    await place.broker.topics.create("t", TopicSettings(key_index="latest"))
    await place.put("t", (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    await place.broker.record_keys.keys("t", b"", None, 1, fresh=True)
    yield place
    await place.appliance.close()


async def view(place: Place) -> ViewPage:
    return await place.broker.record_keys.view("t", None, 2, 1 << 20, fresh=False)


async def empty_forever(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index has begun anew, and nothing is in it yet."""
    index, begun = place.appliance.key_index, asyncio.Event()
    begin, never = index.begin, asyncio.Event()

    async def begin_and_tell(topic_id: int, topic: IndexedTopic) -> None:
        await begin(topic_id, topic)
        begun.set()

    async def add(*_: object) -> None:
        await never.wait()

    monkeypatch.setattr(index, "begin", begin_and_tell)
    monkeypatch.setattr(index, "add", add)
    await place.broker.topics.change("t", {"key_index": "history"})
    await begun.wait()


@pytest.mark.parametrize("page", [0, 1])
async def test_a_view_does_not_end_early_where_the_index_begins_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Who pages to its end would take the record keys that it lacks for deleted ones."""
    cursor = (await view(place)).next_place if page else None
    live = place.appliance.key_index.live

    async def begin_and_look(*arguments: int) -> KeyOffsets:
        await empty_forever(place, monkeypatch)
        return await live(*arguments)

    monkeypatch.setattr(place.appliance.key_index, "live", begin_and_look)
    with pytest.raises(OverloadedError):
        await place.broker.record_keys.view("t", cursor, 2, 1 << 20, fresh=False)


async def test_no_view_begins_while_the_index_begins_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when compaction has left out tombstones that the index did not see."""
    begin, indexing = place.appliance.key_index.begin, place.broker.record_keys.indexing
    asked: asyncio.Future[ViewPage] = asyncio.get_running_loop().create_future()

    async def begin_and_ask(topic_id: int, topic: IndexedTopic) -> None:
        monkeypatch.setattr(indexing, "_lacks_tombstones", lambda *_: False)
        await begin(topic_id, topic)
        try:
            asked.set_result(await view(place))
        except OverloadedError as error:
            asked.set_exception(error)

    monkeypatch.setattr(place.appliance.key_index, "begin", begin_and_ask)
    monkeypatch.setattr(indexing, "_lacks_tombstones", lambda *_: True)
    await place.put("t", (b"d", b"1"))
    with pytest.raises(OverloadedError):
        await asked


async def test_a_fresh_answer_is_never_of_an_index_that_has_begun_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = place.appliance.key_index.latest

    async def begin_and_look(topic_id: int, key: bytes, log_start: int) -> KeyRows:
        await empty_forever(place, monkeypatch)
        return await latest(topic_id, key, log_start)

    monkeypatch.setattr(place.appliance.key_index, "latest", begin_and_look)
    with pytest.raises(OverloadedError):
        await place.broker.record_keys.latest("t", b"a", fresh=True)


async def test_tombstones_that_go_while_the_index_is_trimmed_are_not_missed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record key that was deleted would be in the index for ever."""
    monkeypatch.setattr(limits, "ENTRIES_PER_JOB_MIN", 1)
    await place.restart(tidy_after="0ms")
    kept = {"cleanup": "compact", "dirty_ratio": 0.01, "tombstone_retention_ms": 0}
    await place.broker.topics.change("t", kept)
    await place.broker.record_keys.keys("t", b"", None, 1, fresh=True)
    trim, trimmed = place.appliance.key_index.trim, []

    async def trim_and_compact(topic_id: int, log_start: int) -> None:
        await trim(topic_id, log_start)
        if not trimmed:
            trimmed.append(log_start)
            await place.compact()  # the tombstone outlives what it deletes by a compaction
            await place.put("t", (b"e", b"1"))
            await place.compact()

    monkeypatch.setattr(place.appliance.key_index, "trim", trim_and_compact)
    monkeypatch.setattr(limits, "KEY_INDEX_GATHER_S", 0.5)
    await place.put("t", (b"b", None), (b"d", b"1"))
    await place.broker.topics.trim("t", 1)
    topic = place.broker._catalog.topic("t")
    await place.broker.record_keys.indexing.caught_up(topic, 6)
    assert trimmed
    found = await place.broker.record_keys.keys("t", b"", None, 9, fresh=True)
    assert [row.key for row in found.rows] == [b"c", b"d", b"e"]
    assert [offset for offset, _, _ in await place.records("t")] == [2, 4, 5]

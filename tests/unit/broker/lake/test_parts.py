"""Where the records of a table's next commit lie, while the tidier moves them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seb_appliance.broker.lake import commits
from tests.support.lake import Story, data_file
from tests.support.tidied import Place


async def test_a_merge_of_segments_amid_a_commit_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    await place.start(tidy_after="0ms")
    await place.produce("t", 9)
    tables: Any = place.broker.table_commits
    tables.place = SimpleNamespace(key_of=str)
    look, looks = tables._index.rows_of, 0

    async def after_a_merge(topic: Any, offset: int) -> Any:
        nonlocal looks
        looks += 1
        if looks == 3:
            await place.tidy()
        return await look(topic, offset)

    monkeypatch.setattr(commits, "_ROWS_AT_ONCE", 2)
    monkeypatch.setattr(tables._index, "rows_of", after_a_merge)
    parts, end = await tables._parts(place.broker._catalog.topic("t"), 0, 9)
    assert looks > 2
    covered = [
        offset
        for part in parts
        for offset in range(part.place.base_offset, part.place.last_offset + 1)
    ]
    assert (covered, end) == (list(range(9)), 9)
    await place.appliance.close()


@pytest.mark.parametrize("trims", [True, False])
async def test_a_file_whose_records_are_trimmed_meanwhile_is_not_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trims: bool
) -> None:
    place = Place(tmp_path)
    await place.start(tidy_after="0ms")
    await place.produce("t", 9)
    await place.tidy()
    tables: Any = place.broker.table_commits
    tables.place = SimpleNamespace(key_of=str)
    look = tables._index.rows_of

    async def after_a_trim(topic: Any, offset: int) -> Any:
        if trims:
            await place.broker.topics.trim("t", 4)
        return await look(topic, offset)

    monkeypatch.setattr(tables._index, "rows_of", after_a_trim)
    topic = place.broker._catalog.topic("t")
    story = Story()
    story.commit(data_file(0, 8))
    (old,) = story.table.living()
    settings = tables._settings.effective(topic.settings)
    job = await tables._anew(story.table, topic, settings, old)
    assert (job is None) == trims
    await place.appliance.close()

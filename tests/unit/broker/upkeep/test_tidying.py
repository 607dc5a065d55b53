"""What tidying activates, refuses and counts as garbage; what it adopts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.upkeep.rewrite_jobs import RewriteJob, Rewritten
from seb_appliance.broker.upkeep.tidying import SwitchRefusedError
from seb_appliance.errors import FencedError, ImportRefusedError
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.tidied import Place


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(limits, "ENTRIES_PER_JOB_MIN", 1)
    place = Place(tmp_path)
    await place.start(tidy_after="0ms")
    yield place
    await place.appliance.close()


async def due(place: Place) -> RewriteJob:
    job = await place.broker.tidying.next_job()
    assert job is not None
    return job


async def rewritten(place: Place) -> tuple[RewriteJob, Rewritten]:
    job = await due(place)
    return job, await place.tidier._rewriter.rewrite(job)


async def test_a_switch_is_refused_once_its_entries_were_tidied(place: Place) -> None:
    await place.produce("t", 5)
    (job, made), (_, again) = await rewritten(place), await rewritten(place)
    await place.broker.tidying.switch(job, made)
    assert place.broker.tidying.untidied.entries[0][0] > job.entries[-1].seq
    with pytest.raises(SwitchRefusedError, match="merged in the meantime"):
        await place.broker.tidying.switch(job, again)
    with pytest.raises(SwitchRefusedError, match="was active before"):
        await place.broker.tidying.switch(job, made)


async def test_a_switch_that_leaves_out_a_topic_is_refused(place: Place) -> None:
    await place.produce("t", 5)
    job, made = await rewritten(place)
    with pytest.raises(SwitchRefusedError, match="has more in those entries"):
        await place.broker.tidying.switch(job, replace(made, replaced=(), objects=()))


async def test_an_object_is_condemned_and_removed_once_nothing_in_it_is_active(
    place: Place,
) -> None:
    await place.produce("t", 5)
    job, made = await rewritten(place)
    tidying = place.broker.tidying
    await tidying.switch(job, made)
    assert tidying.unused() == []
    await place.broker.topics.delete("t")
    keys = [stored.key for stored in made.objects]
    assert tidying.unused() == keys
    await tidying.condemn(keys)
    assert (tidying.unused(), tidying.removable()) == ([], keys)
    await tidying.removed(keys)
    assert tidying.removable() == []


async def test_objects_that_nothing_refers_to_are_strays_unless_another_writer_made_them(
    place: Place,
) -> None:
    tidying, epoch = place.broker.tidying, place.appliance.journal.epoch
    assert tidying.strays([("a", epoch), ("a", epoch), ("foreign", None)]) == ["a"]
    with pytest.raises(FencedError, match="another appliance"):
        tidying.strays([("b", epoch + 1)])


async def test_adopted_objects_continue_the_log_and_a_refused_one_changes_nothing(
    place: Place,
) -> None:
    await place.broker.topics.create("t", TopicSettings())
    adopt = place.broker.tidying.adopt
    first, second = await place.old_files("t", 0, 3, 2)
    with pytest.raises(ImportRefusedError, match="begins at offset 3, but the log ends at 0"):
        await adopt([second])
    await adopt([first, second])
    assert await place.values("t") == [b"t %d" % n for n in range(5)]
    with pytest.raises(ImportRefusedError, match="was active already"):
        await adopt([first])
    await place.produce("t", 1)
    (third,) = await place.old_files("t", 6, 1)
    with pytest.raises(ImportRefusedError, match="has records in journal entries"):
        await adopt([third])
    assert place.broker.topics.get("t").log_end_offset == 6

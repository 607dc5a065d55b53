"""What the tidier may take of topics with forks: nothing that anyone can read, and all the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.upkeep.tidying import SwitchRefusedError
from seb_appliance.broker.values import From
from seb_appliance.clock import SystemClock
from seb_appliance.errors import CompactionRefusedError, ForkRefusedError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.checks.check import CheckOptions, check_bucket
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from tests.support.tidied import Place


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(limits, "RETENTION_EVERY_S", -1.0)  # looked at in each step
    monkeypatch.setattr(limits, "OWN_SEGMENT_BYTES_MIN", 1_000)
    place = Place(tmp_path)
    await place.start()
    yield place
    await place.appliance.close()


async def objects(place: Place) -> list[str]:
    return [*await place.keys(layout.SEGMENTS), *await place.keys(layout.PACKED)]


async def test_a_deleted_parents_segments_stay_until_the_last_fork_goes(place: Place) -> None:
    shared = await place.produce("base", 30)
    await place.broker.topics.fork("one", "base")
    await place.broker.topics.fork("two", "one")
    await place.broker.topics.delete("base")
    await place.tidy()
    assert len(await objects(place)) == 1
    await place.broker.topics.delete("one")
    await place.restart()
    await place.tidy()
    assert await place.values("two") == shared
    await place.broker.topics.delete("two")
    await place.restart()
    await place.tidy()
    assert await objects(place) == []


async def test_what_is_adopted_and_trimmed_in_one_entry_goes_in_memory_and_on_disk(
    place: Place,
) -> None:
    await place.broker.topics.create("base", TopicSettings())
    adopt = place.broker.tidying.adopt
    await adopt(await place.old_files("base", 0, 10, 10))
    await place.broker.topics.fork("fork", "base", 10)
    seq = place.broker._catalog.position.seq
    more = await place.old_files("base", 20, 10, 10)
    await asyncio.gather(adopt(more), place.broker.topics.trim("base", 30))
    assert place.broker._catalog.position.seq == seq + 1
    for _ in range(2):
        assert sum(one.sections for one in place.broker._catalog.stored.all()) == 2
        await place.tidy()
        await place.restart()
    assert await place.values("fork") == [b"base %d" % n for n in range(10)]
    assert await place.values("base") == [b"base %d" % n for n in range(30, 40)]


async def test_what_came_behind_the_fork_offset_goes_with_the_deleted_parent(place: Place) -> None:
    shared = await place.produce("base", 30)
    await place.tidy()
    await place.broker.topics.fork("fork", "base")
    for _ in range(2):
        await place.produce("base", 30)
        await place.tidy()
    assert len(await objects(place)) == 3
    await place.broker.topics.delete("base")
    await place.tidy()
    # The last segment tells where the rows of entries begin.
    assert len(await objects(place)) == 2
    assert await place.values("fork") == shared
    await place.restart()
    assert await place.values("fork") == shared


async def test_retention_takes_what_neither_the_parent_nor_its_fork_reads(place: Place) -> None:
    shared = await place.produce("base", 30)
    await place.tidy()
    await place.broker.topics.fork("fork", "base", settings=TopicSettings())
    for _ in range(3):
        await place.produce("base", 30)
        await place.tidy()
    quarter = place.broker.topics.get("base").bytes // 4
    await place.broker.topics.change("base", {"retention_bytes": quarter + 10})
    await place.tidy()
    start = place.broker.topics.get("base").log_start_offset
    assert start == 90
    assert await place.values("fork") == shared
    assert len(await objects(place)) == 2
    await place.broker.topics.trim("fork", 30)
    await place.tidy()
    assert len(await objects(place)) == 1
    assert place.broker.topics.get("base").bytes < quarter + 100


async def test_a_forks_retention_goes_through_what_it_shares(place: Place) -> None:
    await place.produce("base", 30)
    await place.tidy()
    await place.produce("base", 30)
    await place.tidy()
    most = place.broker.topics.get("base").bytes // 2 + 500
    await place.broker.topics.fork("fork", "base", settings=TopicSettings(retention_bytes=most))
    own = await place.produce("fork", 2)
    await place.tidy()
    assert place.broker.topics.get("fork").log_start_offset == 30
    assert (await place.values("fork"))[-2:] == own
    assert place.broker.topics.get("base").log_start_offset == 0


async def test_what_a_fork_shares_is_not_compacted_while_it_lives(place: Place) -> None:
    settings = TopicSettings(cleanup="compact", dirty_ratio=0.01, tombstone_retention_ms=0)
    await place.broker.topics.create("base", settings)
    for n in range(30):
        await place.put("base", (b"k", b"%d" % n + b"x" * 50))
    await place.broker.topics.fork("fork", "base", 20)
    await place.put("fork", (b"k", None))
    await place.put("fork", (b"k", b"own"))
    await place.put("fork", (b"k", None))
    await place.put("fork", (b"z", b"last"))
    await place.compact()
    assert [offset for offset, _, _ in await place.records("fork")] == [*range(20), 22, 23]
    assert [offset for offset, _, _ in await place.records("base")][:20] == [*range(20)]
    for name in ("base", "fork"):
        with pytest.raises(CompactionRefusedError):
            await place.broker.tidying.external.begin(name)
    await place.broker.topics.delete("fork")
    await place.compact()
    assert [offset for offset, _, _ in await place.records("base")] == [29]


async def test_a_compaction_of_what_was_forked_meanwhile_is_refused(place: Place) -> None:
    settings = TopicSettings(cleanup="compact", dirty_ratio=0.01)
    await place.broker.topics.create("base", settings)
    for n in range(30):
        await place.put("base", (b"k", b"%d" % n + b"x" * 50))
    await place.tidier.step()
    job = await place.broker.tidying.next_job()
    assert job is not None
    assert job.compactions
    made = await place.tidier._rewriter.rewrite(job)
    await place.broker.topics.fork("fork", "base", 10)
    with pytest.raises(SwitchRefusedError, match="forked in the meantime"):
        await place.broker.tidying.switch(job, made)
    assert len(await place.records("fork")) == 10
    await place.broker.topics.delete("base")
    with pytest.raises(SwitchRefusedError, match="only its forks are left"):
        await place.broker.tidying.switch(job, made)
    assert len(await place.records("fork")) == 10


async def test_a_fork_that_would_lack_newest_records_of_keys_is_refused(place: Place) -> None:
    settings = TopicSettings(cleanup="compact", dirty_ratio=0.01, tombstone_retention_ms=0)
    await place.broker.topics.create("base", settings)
    for n in range(30):
        await place.put("base", (b"k%d" % (n % 3), b"%d" % n + b"x" * 50))
    await place.compact()
    with pytest.raises(ForkRefusedError) as refused:
        # Of k2, the record at 26 is gone, and the one at 29 would not be part of the fork.
        await place.broker.topics.fork("part", "base", 29)
    assert refused.value.data == {"base_offset": 0, "next_offset": 30}
    await place.broker.topics.fork("empty", "base", 0)
    await place.broker.topics.fork("whole", "base", 30)
    for n in range(30, 40):
        await place.put("whole", (b"k%d" % (n % 3), b"%d" % n + b"x" * 50))
    await place.broker.topics.fork("later", "whole", 33)
    assert [offset for offset, _, _ in await place.records("later")] == [27, 28, 29, 30, 31, 32]
    await place.broker.topics.delete("base")
    for _ in range(2):
        await place.broker.topics.fork("same", "whole", 30)
        with pytest.raises(ForkRefusedError):
            await place.broker.topics.fork("part", "whole", 29)
        await place.restart()


async def test_a_deleted_parent_that_is_compacted_no_more_is_still_not_forked_in_its_middle(
    place: Place,
) -> None:
    settings = TopicSettings(cleanup="compact", dirty_ratio=0.01, tombstone_retention_ms=0)
    await place.broker.topics.create("base", settings)
    for n in range(30):
        await place.put("base", (b"k%d" % (n % 3), b"%d" % n + b"x" * 50))
    await place.compact()
    await place.broker.topics.change("base", {"cleanup": "delete"})
    await place.broker.topics.fork("whole", "base", 30)
    await place.broker.topics.delete("base")
    for _ in range(2):
        with pytest.raises(ForkRefusedError):
            await place.broker.topics.fork("part", "whole", 29)
        await place.restart()


async def test_a_fork_below_a_compaction_on_its_way_is_refused_once_that_is_stored(
    place: Place,
) -> None:
    settings = TopicSettings(cleanup="compact", dirty_ratio=0.01)
    await place.broker.topics.create("base", settings)
    for n in range(30):
        await place.put("base", (b"k", b"%d" % n + b"x" * 50))
    await place.tidier.step()
    job = await place.broker.tidying.next_job()
    assert job is not None
    assert job.compactions
    made = await place.tidier._rewriter.rewrite(job)
    switching = asyncio.create_task(place.broker.tidying.switch(job, made))
    while place.broker.tidying.is_settled:
        await asyncio.sleep(0)
    with pytest.raises(ForkRefusedError):
        await place.broker.topics.fork("fork", "base", 10)
    assert place.broker.tidying.is_settled
    await switching


async def test_entries_merged_while_their_topic_was_deleted_stay_for_its_fork(place: Place) -> None:
    shared = await place.produce("base", 30)
    job = await place.broker.tidying.next_job()
    assert job is not None
    made = await place.tidier._rewriter.rewrite(job)
    await place.broker.topics.fork("fork", "base")
    await place.broker.topics.delete("base")
    await place.broker.tidying.switch(job, made)
    assert await place.values("fork") == shared
    await place.restart()
    assert await place.values("fork") == shared
    assert await place.values("fork", From(offset=29)) == shared[29:]


async def test_a_forks_manifest_names_only_segments_with_nothing_of_the_parent_alone(
    place: Place,
) -> None:
    await place.produce("base", 30)
    await place.tidy()
    await place.produce("base", 30)
    await place.tidy()
    await place.broker.topics.fork("whole", "base", 60)
    await place.broker.topics.fork("part", "base", 40)
    await place.produce("part", 30)
    await place.tidy()
    named = {}
    for name in ("base", "whole", "part"):
        manifest = await place.broker.manifests.of(name, From(earliest=True), None, None)
        found = [(s.base_offset, s.last_offset) for one in manifest.segments for s in one.sections]
        named[name] = (found, manifest.segments_end_offset)
    assert named["base"] == ([(0, 29), (30, 59)], 60)
    assert named["whole"] == ([(0, 29), (30, 59)], 60)
    assert named["part"] == ([(0, 29), (40, 69)], 70)


async def test_fsck_tells_what_a_fork_has_lost_with_its_deleted_parents_segment(
    place: Place,
) -> None:
    await place.produce("base", 30)
    await place.tidy()
    await place.produce("base", 3)
    await place.broker.topics.fork("fork", "base", 20)
    await place.broker.topics.delete("base")
    clock = SystemClock()
    retrying = RetryingStore(place.store, clock, lambda: 0.5, give_up_after_s=5)

    async def problems() -> list[tuple[str, str | None, tuple[int, int] | None]]:
        report = await check_bucket(retrying, clock, CheckOptions(), lambda *_: None)
        found = report.findings.problems
        return [(problem.code, problem.topic, problem.offsets) for problem in found]

    assert await problems() == []
    (key,) = await objects(place)
    await place.store.delete(key)
    assert ("records_lost", "fork", (0, 19)) in await problems()

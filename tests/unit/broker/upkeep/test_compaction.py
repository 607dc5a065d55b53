"""Compaction in an appliance: of each record key the newest stays, at its offset, and is found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.ports import SectionRef
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.upkeep.tidying import SwitchRefusedError
from seb_appliance.broker.values import Delayed, From, NewRecords, ReadRequest
from seb_appliance.clock import SystemClock
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.storage import layout
from tests.support.tidied import ADMIN, Place

COMPACT = {"cleanup": "compact", "dirty_ratio": 0.01, "tombstone_retention_ms": 0}


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(limits, "RETENTION_EVERY_S", -1.0)  # looked at in each step
    monkeypatch.setattr(limits, "ENTRIES_PER_JOB_MIN", 1)
    place = Place(tmp_path)
    await place.start(tidy_after="0ms")
    yield place
    await place.appliance.close()


async def topic(place: Place, **settings: object) -> None:
    chosen = TopicSettings(**{**COMPACT, **settings})
    await place.broker.topics.create("t", chosen)


async def test_of_each_record_key_the_newest_stays_at_its_offset(place: Place) -> None:
    await topic(place)
    await place.put("t", (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"plain"))
    await place.put("t", (b"a", b"3"), (b"c", b"1"))
    await place.compact()
    left = [(1, b"b", b"1"), (3, None, b"plain"), (4, b"a", b"3"), (5, b"c", b"1")]
    assert await place.records("t") == left
    assert place.tidier.counters.records_removed == 2
    await place.restart(tidy_after="0ms")
    assert await place.records("t") == left
    await place.put("t", (b"b", b"2"))
    await place.compact()
    assert await place.records("t") == [*left[1:], (6, b"b", b"2")]


async def test_a_reader_goes_over_gaps_from_any_offset_and_time(place: Place) -> None:
    await topic(place)
    for n in range(10):
        await place.put("t", (b"same", b"%d" % n), (b"k%d" % n, b"x"))
    await place.compact()
    offsets = [1, 3, 5, 7, 9, 11, 13, 15, 17, 18, 19]
    assert [offset for offset, _, _ in await place.records("t")] == offsets
    for begin in range(21):
        result = await place.broker.read("t", ReadRequest(From(offset=begin)))
        found = [
            piece.batch.offsets()[i]
            for piece in result.slices
            for i in range(piece.begin, piece.end)
        ]
        assert found == [offset for offset in offsets if offset >= begin]
        assert result.next_offset == 20
    until = ReadRequest(From(offset=2), until=From(offset=7))
    assert (await place.broker.read("t", until)).next_offset == 7
    last = await place.broker.read("t", ReadRequest(From(last=3)))
    assert [piece.batch.offsets()[piece.begin] for piece in last.slices] == [17]


async def test_a_tombstone_stays_for_its_retention_and_then_goes_with_the_record(
    place: Place,
) -> None:
    await topic(place, tombstone_retention_ms=3_600_000)
    await place.put("t", (b"a", b"1"), (b"b", b"1"))
    await place.put("t", (b"a", None))
    await place.put("t", (b"b", b"2"))
    await place.compact()
    assert await place.records("t") == [(2, b"a", None), (3, b"b", b"2")]
    await place.broker.topics.change("t", {"tombstone_retention_ms": 0})
    await place.put("t", (b"b", b"3"))
    await place.compact()
    assert await place.records("t") == [(4, b"b", b"3")]


async def test_a_jump_of_the_clock_takes_no_tombstone_and_compacts_nothing_early(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topic(place, tombstone_retention_ms=3_600_000)
    await place.put("t", (b"a", b"1"), (b"b", b"1"))
    await place.put("t", (b"a", None), (b"b", b"2"))
    await place.compact()
    wall_us = SystemClock.wall_us
    monkeypatch.setattr(SystemClock, "wall_us", lambda self: wall_us(self) + 86_400_000_000)
    await place.put("t", (b"b", b"3"))
    await place.compact()
    assert await place.records("t") == [(2, b"a", None), (4, b"b", b"3")]
    await place.broker.topics.change("t", {"min_compaction_lag_ms": 3_600_000})
    await place.put("t", (b"b", b"4"))
    await place.compact()
    assert [offset for offset, _, _ in await place.records("t")] == [2, 4, 5]


async def test_a_delayed_record_and_all_behind_it_stay_until_it_is_due(place: Place) -> None:
    await topic(place)
    await place.put("t", (b"a", b"1"), (b"a", b"2"))
    later = NewRecords([b"3"], [b"a"], delayed=[Delayed(0, 1, 3_600_000_000, from_now=True)])
    held = place.broker.pending.reserve(OPERATOR, 1)
    await place.broker.appends.append(ADMIN, "t", later, held)
    await place.put("t", (b"a", b"4"), (b"b", b"1"))
    await place.compact()
    assert {2, 3, 4} <= {offset for offset, _, _ in await place.records("t")}
    place.broker._catalog.delays.count([])  # as if it had come due
    await place.put("t", (b"b", b"2"))
    await place.compact()
    assert [offset for offset, _, _ in await place.records("t")] == [3, 5]


async def test_a_tombstone_outlives_what_it_deletes_by_a_compaction(place: Place) -> None:
    """However old it is: below it a reader may just have read what it deletes."""
    await topic(place)
    await place.put("t", (b"a", b"1"), (b"b", b"1"))
    await place.put("t", (b"a", None))
    await place.put("t", (b"c", b"1"))
    await place.compact()
    assert await place.records("t") == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    await place.put("t", (b"d", b"1"), (b"b", None), (b"d", b"2"))
    await place.compact()
    left = [(3, b"c", b"1"), (5, b"b", None), (6, b"d", b"2")]
    assert await place.records("t") == left


async def test_a_read_amid_a_compaction_does_not_keep_what_was_deleted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topic(place)
    await place.put("t", (b"a", b"1"), (b"b", b"1"))
    await place.compact()
    await place.put("t", (b"a", None))
    await place.put("t", (b"b", b"2"))
    await place.restart(tidy_after="0ms")
    read = place.appliance.sections.read
    amid = []

    async def read_and_compact(ref: SectionRef) -> bytes:
        data = await read(ref)
        if ref.base_offset == 0 and not amid:
            amid.append(ref)
            await place.compact()
        return data

    monkeypatch.setattr(place.appliance.sections, "read", read_and_compact)
    found = await place.records("t")
    assert amid
    assert [found[0], found[-1]] == [(0, b"a", b"1"), (3, b"b", b"2")]
    assert (2, b"a", None) in found


async def test_a_tombstone_stays_while_older_records_lie_below_what_is_compacted(
    place: Place,
) -> None:
    await topic(place, dirty_ratio=0.99)
    await place.put("t", (b"a", b"x" * 5_000), (b"b", b"x" * 5_000))
    await place.compact()
    stored = place.broker._catalog.topic("t").stored
    assert [run[:2] for run in place.broker._catalog.topic("t").runs] == [(0, 1)]
    assert len(stored) == 1
    place.broker.tidying.compactions._segment_bytes = 1  # what came since is worth it alone
    await place.put("t", (b"a", None), (b"c", b"1"))
    await place.compact()
    assert [run[:2] for run in place.broker._catalog.topic("t").runs] == [(0, 1), (2, 3)]
    assert [(o, k) for o, k, _ in await place.records("t")] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"a"),
        (3, b"c"),
    ]
    await place.restart(tidy_after="0ms")
    assert [run[:2] for run in place.broker._catalog.topic("t").runs] == [(0, 1), (2, 3)]
    await place.broker.topics.change("t", {"dirty_ratio": 0.01})
    await place.put("t", (b"c", b"2"))
    await place.compact()
    assert [(o, k) for o, k, _ in await place.records("t")] == [(1, b"b"), (2, b"a"), (4, b"c")]
    await place.put("t", (b"c", b"3"))
    await place.compact()
    assert [(o, k) for o, k, _ in await place.records("t")] == [(1, b"b"), (5, b"c")]


async def test_the_newest_record_stays_though_it_is_a_tombstone(place: Place) -> None:
    await topic(place)
    await place.put("t", (b"a", b"1"), (b"a", None))
    await place.compact()
    assert await place.records("t") == [(1, b"a", None)]
    assert place.broker.topics.get("t").log_start_offset == 0


async def test_young_records_stay_as_they_are(place: Place) -> None:
    await topic(place, min_compaction_lag_ms=3_600_000)
    await place.put("t", (b"a", b"1"), (b"a", b"2"))
    await place.compact()
    assert [offset for offset, _, _ in await place.records("t")] == [0, 1]
    await place.broker.topics.change("t", {"min_compaction_lag_ms": None})
    await place.compact()
    assert [offset for offset, _, _ in await place.records("t")] == [1]


async def test_a_topic_that_holds_records_already_is_compacted_once_it_is_asked_for(
    place: Place,
) -> None:
    for n in range(20):
        await place.put("t", (b"k%d" % (n % 3), b"%d" % n))
    await place.compact()
    assert len(await place.records("t")) == 20
    await place.broker.topics.change("t", {"cleanup": "compact"})
    assert (await place.broker.tidying.compactions.progress()).dirty_bytes > 0
    await place.compact()
    assert [offset for offset, _, _ in await place.records("t")] == [17, 18, 19]
    assert (await place.broker.tidying.compactions.progress()).dirty_bytes == 0


async def test_only_what_cleanup_says_is_removed(place: Place) -> None:
    settings = {"retention_bytes": 1, "dirty_ratio": 0.01}
    for cleanup, left in (
        ("none", [0, 1, 2, 3]),
        ("delete", []),
        ("compact", [1, 3]),
        ("compact,delete", []),
    ):
        name = f"of-{cleanup.replace(',', '-')}"
        await place.broker.topics.create(name, TopicSettings(cleanup=cleanup, **settings))
        await place.put(name, (b"a", b"1"), (b"a", b"2"))
        await place.put(name, (b"b", b"1"), (b"b", b"2"))
        await place.compact()
        assert [offset for offset, _, _ in await place.records(name)] == left, cleanup


async def test_small_topics_are_compacted_together_into_one_object(place: Place) -> None:
    for n in reversed(range(20)):  # their ids are in another order than their names
        await place.broker.topics.create(f"t{n:02}", TopicSettings(**COMPACT))
        await place.put(f"t{n:02}", (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    await place.compact()
    assert place.tidier.counters.jobs == 2
    for n in range(20):
        assert [offset for offset, _, _ in await place.records(f"t{n:02}")] == [1, 2]


async def test_a_large_topic_becomes_several_segments(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topic(place, compression="none")
    for n in range(40):
        await place.put("t", (b"k%d" % n, b"x" * 5_000), (b"same", b"%d" % n))
    monkeypatch.setattr("seb_appliance.storage.objects.merging._STAYS_BYTES", 1)
    monkeypatch.setattr(limits, "SEGMENT_SECTION_BYTES", 20_000)
    monkeypatch.setattr(limits, "COMPACTION_READ_BYTES", 10_000)
    monkeypatch.setattr("seb_appliance.storage.objects.compacting._OBJECTS_MAX", 4)
    await place.broker.tidying.switch(*(await job_done(place)))
    job, made = await job_done(place)
    assert job.compactions
    assert len(made.objects) == 1
    smaller = type(job)(**{**{f: getattr(job, f) for f in job.__slots__}, "segment_bytes": 1})
    made = await place.tidier._rewriter.rewrite(smaller)
    assert len(made.objects) >= 2
    await place.broker.tidying.switch(smaller, made)
    offsets = [offset for offset, _, _ in await place.records("t")]
    assert offsets == [*range(0, 80, 2), 79]


async def test_a_batch_of_which_nothing_stays_leaves_its_offsets_to_its_neighbour(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seb_appliance.storage.objects.merging._STAYS_BYTES", 1)
    await topic(place)
    for _ in range(3):
        await place.put("t", (b"a", b"1"), (b"b", b"1"))
    await place.put("t", (b"c", b"1"))
    await place.put("t", (b"d", b"1"))
    await place.put("t", (b"d", b"2"))
    await place.compact()
    left = [(4, b"a", b"1"), (5, b"b", b"1"), (6, b"c", b"1"), (8, b"d", b"2")]
    assert await place.records("t") == left
    (base,) = place.broker._catalog.topic("t").stored.bases
    assert base == 0
    await place.put("t", (b"e", b"1"))
    await place.compact()
    assert await place.records("t") == [*left, (9, b"e", b"1")]


async def job_done(place: Place):
    job = await place.broker.tidying.next_job()
    assert job is not None
    return job, await place.tidier._rewriter.rewrite(job)


async def compacting(place: Place):
    """A compaction of topic t that is ready to be put in force."""
    await topic(place)
    await place.put("t", (b"a", b"1"), (b"b", b"1"))
    await place.put("t", (b"a", b"2"), (b"b", b"2"))
    await place.broker.tidying.switch(*(await job_done(place)))
    job, made = await job_done(place)
    assert job.compactions
    return job, made


async def test_a_topic_trimmed_while_it_was_compacted_stays_trimmed(place: Place) -> None:
    job, made = await compacting(place)
    await place.broker.topics.trim("t", 3)
    await place.broker.tidying.switch(job, made)
    assert await place.records("t") == [(3, b"b", b"2")]
    await place.restart(tidy_after="0ms")
    assert await place.records("t") == [(3, b"b", b"2")]


async def test_a_topic_made_anew_while_it_was_compacted_has_nothing_of_the_old_one(
    place: Place,
) -> None:
    job, made = await compacting(place)
    await place.broker.topics.delete("t")
    await place.put("t", (b"a", b"new"))
    await place.broker.tidying.switch(job, made)
    assert await place.records("t") == [(0, b"a", b"new")]
    assert set(place.broker.tidying.unused()) >= {stored.key for stored in made.objects}
    assert place.broker._catalog.topic("t").runs == []
    await place.restart(tidy_after="0ms")
    assert await place.records("t") == [(0, b"a", b"new")]


async def test_nothing_is_removed_once_somebody_asked_for_that(place: Place) -> None:
    job, made = await compacting(place)
    await place.broker.topics.change("t", {"cleanup": "none"})
    with pytest.raises(SwitchRefusedError, match="no longer compacted"):
        await place.broker.tidying.switch(job, made)
    assert len(await place.records("t")) == 4


async def test_tombstones_stay_once_somebody_asked_for_that(place: Place) -> None:
    job, made = await compacting(place)
    await place.broker.topics.change("t", {"tombstone_retention_ms": 3_600_000})
    with pytest.raises(SwitchRefusedError, match="keeps tombstones for longer"):
        await place.broker.tidying.switch(job, made)
    assert len(await place.records("t")) == 4


async def test_a_topic_that_cannot_be_compacted_does_not_hold_up_the_others(place: Place) -> None:
    await topic(place)
    await place.broker.topics.create("u", TopicSettings(**COMPACT))
    for n in range(3):
        await place.put("t", (b"a", b"%d" % n))
        await place.put("u", (b"a", b"%d" % n))
    await place.broker.tidying.switch(*(await job_done(place)))
    (key,) = await place.keys(layout.PACKED)
    body = bytearray(await place.store.get(key))
    body[100] ^= 1  # in topic t's first batch
    await place.store.put(key, bytes(body))
    with pytest.raises(CorruptObjectError):
        await place.compact()
    await place.put("v", (b"a", b"1"))
    await place.compact()
    assert len(place.broker.tidying.untidied.entries) < 5
    place.broker.tidying.compactions._failed.update(
        dict.fromkeys(place.broker.tidying.compactions._failed, -1000000000.0)
    )
    with pytest.raises(CorruptObjectError):
        await place.compact()
    await place.compact()
    assert [offset for offset, _, _ in await place.records("u")] == [2]


async def test_compaction_needs_no_key_index_and_an_index_sees_what_is_left(place: Place) -> None:
    await topic(place, key_index="history")
    for n in range(6):
        await place.put("t", (b"a", b"%d" % n), (b"b%d" % n, b"x"))
    await place.compact()
    keys = place.broker.record_keys
    history = await keys.history("t", b"a", None, 10, fresh=True)
    assert [p.batch.offsets()[p.begin] for p in history.result.slices] == [10]
    latest = await keys.latest("t", b"a", fresh=True)
    assert latest.result.slices[0].batch.columns.values.get(latest.result.slices[0].begin) == b"5"

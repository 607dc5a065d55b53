"""The tidier in an appliance over a bucket in memory: every record stays, what is gone goes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.ports import SectionRef
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics import catalog
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.upkeep.tidying import SwitchRefusedError
from seb_appliance.broker.values import From, NewRecords, ReadRequest
from seb_appliance.clock import SystemClock
from seb_appliance.errors import (
    CorruptObjectError,
    FencedError,
    OffsetExpiredError,
    TopicNotFoundError,
)
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats import batch, segment
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.disk_cache import DiskCache, EntriesOnDisk, entry_name
from seb_appliance.storage.objects.rewriting import ObjectRewriter
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.object_store import ObjectInfo, ObjectRange, list_all
from tests.support.tidied import ADMIN, Place


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(limits, "RETENTION_EVERY_S", -1.0)  # looked at in each step
    place = Place(tmp_path)
    await place.start()
    yield place
    await place.appliance.close()


async def test_entries_become_a_packed_object_and_every_record_stays(place: Place) -> None:
    a, b = await place.produce("a", 30), await place.produce("b", 20)
    await place.tidy()
    (key,) = await place.keys(layout.PACKED)
    index = segment.decode(await place.store.get(key))
    assert [section.record_count for section in index.sections] == [30, 20]
    assert (await place.values("a"), await place.values("b")) == (a, b)
    more = await place.produce("a", 3)
    assert await place.values("a") == a + more
    await place.restart()
    assert (await place.values("a"), await place.values("b")) == (a + more, b)


async def test_a_topic_with_enough_of_its_own_gets_a_segment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OWN_SEGMENT_BYTES_MIN", 2_000)
    await place.produce("large", 30)
    await place.produce("small", 3)
    await place.produce("tiny", 3)
    await place.tidy()
    assert len(await place.keys(layout.SEGMENTS)) == len(await place.keys(layout.PACKED)) == 1


@pytest.mark.parametrize("compression", ["zstd", "none"])
async def test_small_batches_become_one_that_is_stored_as_the_topic_wants(
    place: Place, compression: str
) -> None:
    await place.broker.topics.create("t", TopicSettings(compression=compression))
    values = await place.produce("t", 30, size=600)
    await place.tidy()
    (key,) = await place.keys(layout.SEGMENTS)
    body = await place.store.get(key)
    (section,) = segment.decode(body).sections
    ((_, header),) = batch.walk(body[section.at : section.at + section.length])
    assert (header.count, bool(header.flags & batch.ZSTD)) == (30, compression == "zstd")
    assert await place.values("t") == values


async def test_readers_find_every_record_while_a_switch_comes_into_force_in_steps(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_SWITCHED_AT_ONCE", 1)
    steps = Catalog.steps

    def slowly(self: Catalog) -> Iterator[None]:
        for _ in steps(self):
            yield from [None] * 300  # turns of the event loop, for the reader

    monkeypatch.setattr(Catalog, "steps", slowly)
    expected = {f"t{n}": await place.produce(f"t{n}", 10) for n in range(6)}
    seen: set[int] = set()

    async def reading() -> None:
        while True:
            for name, values in expected.items():
                assert await place.values(name) == values
            topics = place.broker._catalog.topics()
            seen.add(sum(len(topic.stored) > 0 for topic in topics))
            await asyncio.sleep(0)

    reader = asyncio.create_task(reading())
    await place.tidy()
    await asyncio.sleep(0)
    reader.cancel()
    with suppress(asyncio.CancelledError):
        await reader
    assert len(seen) > 4
    assert {name: await place.values(name) for name in expected} == expected


async def test_entries_come_from_the_disk_unless_they_are_damaged_or_missing_there(
    place: Place, tmp_path: Path
) -> None:
    values = await place.produce("t", 30)
    folder = tmp_path / "cache"
    cache = DiskCache(folder, 1 << 20, NO_FAILPOINTS)
    job = await place.broker.tidying.next_job()
    assert job is not None
    for ref in job.entries:
        cache.put(entry_name(ref.seq), await place.store.get(layout.object_key("A", ref)))
    missing, damaged, other = (folder / entry_name(ref.seq) for ref in job.entries[-3:])
    other.write_bytes(damaged.read_bytes())  # as a cache of another history of the bucket might
    damaged.write_bytes(damaged.read_bytes()[:-60] + b"?" * 60)
    missing.unlink()
    bucket = CountedStore(place.store)
    retrying = RetryingStore(
        EntriesOnDisk(bucket, folder), SystemClock(), lambda: 0.5, give_up_after_s=5
    )
    made = await ObjectRewriter(retrying, "A", folder).rewrite(job)
    assert bucket.counts.requests("GET") == 3 + len(made.objects)
    await place.broker.tidying.switch(job, made)
    assert await place.values("t") == values


async def test_a_fetch_by_time_finds_records_in_segments(place: Place) -> None:
    records = NewRecords([b"1", b"2", b"3"], timestamps_us=[1_000, 3_000, 2_000])
    await place.broker.appends.append(
        ADMIN, "t", records, place.broker.pending.reserve(OPERATOR, 1)
    )
    await place.produce("t", 20)
    await place.tidy()
    assert (await place.values("t", From(timestamp_us=1_500)))[0] == b"2"
    assert (await place.values("t", From(timestamp_us=3_001)))[0].startswith(b"0 ")


async def test_retention_by_bytes_lets_the_oldest_go_and_readers_get_410(place: Place) -> None:
    values = await place.produce("t", 40)
    size = place.broker.topics.get("t").bytes // 40
    await place.broker.topics.change("t", {"retention_bytes": 10 * size})
    await place.tidier.step()
    view = place.broker.topics.get("t")
    assert (view.log_start_offset, view.bytes) == (30, 10 * size)
    assert await place.values("t") == values[30:]
    with pytest.raises(OffsetExpiredError):
        await place.values("t", From(offset=29))


async def test_retention_by_age_goes_by_when_the_appliance_took_a_record(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.produce("t", 5)
    await place.broker.topics.change("t", {"retention_ms": 60_000})
    await place.tidier.step()
    assert place.broker.topics.get("t").log_start_offset == 0
    wall_us, monotonic_s = place.appliance.clock.wall_us, place.appliance.clock.monotonic_s
    clock = place.appliance.clock
    monkeypatch.setattr(clock, "wall_us", lambda: wall_us() + 61_000_000)
    monkeypatch.setattr(clock, "monotonic_s", lambda: monotonic_s() + 61.0)
    await place.tidier.step()
    assert place.broker.topics.get("t").log_start_offset == 5
    assert await place.values("t") == []


async def test_after_a_jump_of_the_clock_nothing_goes_by_age(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.produce("t", 5)
    await place.broker.topics.change("t", {"retention_ms": 60_000})
    wall_us = place.appliance.clock.wall_us
    clock = place.appliance.clock
    monkeypatch.setattr(clock, "wall_us", lambda: wall_us() + 86_400_000_000)
    await place.tidier.step()
    assert place.broker.topics.get("t").log_start_offset == 0


async def test_after_a_start_with_a_wrong_clock_nothing_goes_by_age_for_an_hour(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.produce("t", 5)
    await place.broker.topics.change("t", {"retention_ms": 60_000})
    wall_us = SystemClock.wall_us
    monkeypatch.setattr(SystemClock, "wall_us", lambda self: wall_us(self) + 86_401_000_000)
    await place.restart()
    await place.tidier.step()
    assert place.broker.topics.get("t").log_start_offset == 0


async def test_an_object_with_nothing_in_force_is_condemned_and_then_deleted(place: Place) -> None:
    await place.produce("t", 30)
    await place.tidy()
    (key,) = await place.keys(layout.SEGMENTS)
    await place.broker.topics.delete("t")
    assert await place.tidier.step()
    assert len(place.broker.tidying.stored.garbage) == 1
    assert await place.keys(layout.SEGMENTS) == [key]
    assert await place.tidier.step()
    assert await place.keys(layout.SEGMENTS) == []
    assert len(place.broker.tidying.stored.garbage) == 0


async def test_garbage_stays_for_the_grace_time_also_over_a_restart(place: Place) -> None:
    await place.restart(garbage_grace="1h")
    await place.produce("t", 30)
    await place.tidy()
    await place.broker.topics.delete("t")
    await place.tidy()
    await place.restart(garbage_grace="1h")
    await place.tidy()
    assert len(place.broker.tidying.stored.garbage) == 1
    assert len(await place.keys(layout.SEGMENTS)) == 1


async def test_what_an_earlier_start_left_unused_is_condemned(place: Place) -> None:
    stray = layout.segment_key(7, 0, 9, place.appliance.journal.epoch, b"\1" * 8)
    await place.store.put(stray, b"a job that was cut short")
    await place.restart()
    await place.tidy()
    assert await place.keys(layout.SEGMENTS) == []


async def test_a_stray_that_the_store_shows_twice_is_condemned_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray = layout.packed_key(1, 2, 1, b"\1" * 8)
    await place.store.put(stray, b"half")
    shown = place.store.list_after

    async def twice(prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        return [info for found in await shown(prefix, after, limit) for info in (found, found)]

    monkeypatch.setattr(place.store, "list_after", twice)
    await place.tidy()
    monkeypatch.undo()
    await place.restart()
    assert await place.keys(layout.PACKED) == []


async def test_the_name_of_a_later_epoch_means_that_we_are_fenced(place: Place) -> None:
    later = layout.segment_key(7, 0, 9, place.appliance.journal.epoch + 1, b"\1" * 8)
    await place.store.put(later, b"of a newer writer")
    with pytest.raises(FencedError):
        await place.tidier.step()
    assert await place.keys(layout.SEGMENTS) == [later]


async def test_a_damaged_entry_is_never_tidied_away(place: Place) -> None:
    await place.produce("t", 30)
    key = layout.create_only_key(10)
    body = bytearray(await place.store.get(key))
    body[-1] ^= 1
    await place.store.put(key, bytes(body))
    job = await place.broker.tidying.next_job()
    assert job is not None
    with pytest.raises(CorruptObjectError, match=key):
        await place.tidier._rewriter.rewrite(job)
    assert await place.keys(layout.SEGMENTS) == []


async def test_what_is_not_read_back_as_it_was_meant_is_not_put_in_force(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = await place.produce("t", 30)
    put = place.store.put

    async def lossy(key: str, body: bytes) -> None:
        damaged = bytearray(body)
        damaged[200] ^= 1
        await put(key, bytes(damaged) if key.startswith(layout.SEGMENTS) else body)

    monkeypatch.setattr(place.store, "put", lossy)
    with pytest.raises(CorruptObjectError):
        await place.tidy()
    assert len(place.broker.tidying.stored) == 0
    assert await place.values("t") == values


async def test_a_topic_trimmed_while_its_entries_were_merged_stays_trimmed(place: Place) -> None:
    values = await place.produce("t", 30)
    job = await place.broker.tidying.next_job()
    assert job is not None
    made = await place.tidier._rewriter.rewrite(job)
    await place.broker.topics.trim("t", 12)
    await place.broker.tidying.switch(job, made)
    assert await place.values("t") == values[12:]
    await place.restart()
    assert await place.values("t") == values[12:]


async def test_what_was_trimmed_whole_while_it_was_merged_is_garbage(place: Place) -> None:
    await place.produce("t", 30)
    job = await place.broker.tidying.next_job()
    assert job is not None
    made = await place.tidier._rewriter.rewrite(job)
    await place.broker.topics.trim("t", 30)
    await place.broker.tidying.switch(job, made)
    assert place.broker.tidying.unused() == [stored.key for stored in made.objects]
    await place.restart()
    assert place.broker.tidying.unused() == [stored.key for stored in made.objects]
    assert await place.values("t") == []


async def test_an_answer_ends_where_its_batches_were_merged_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first batch of an answer may hold records from before it: who gets whole batches
    would read those of a later one twice."""
    values = await place.produce("t", 30)
    await place.restart()
    read = place.appliance.sections.read

    async def read_and_merge(ref: SectionRef) -> bytes:
        data = await read(ref)
        if ref.base_offset == 10:
            await place.tidy()
        return data

    monkeypatch.setattr(place.appliance.sections, "read", read_and_merge)
    offset, answers = 5, []
    while offset < len(values):
        answers.append(await place.broker.read("t", ReadRequest(From(offset=offset))))
        offset = answers[-1].next_offset
    assert place.broker._catalog.topic("t").stored.bases.tolist() == [0]
    assert [answer.next_offset for answer in answers] == [11, 30]
    for answer in answers:
        assert all(piece.begin == 0 for piece in answer.slices[1:])


async def test_a_read_of_segments_does_not_step_over_what_is_left_after_a_trim(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = []
    for _ in range(4):
        values += await place.produce("t", 30)
        await place.tidy()
    await place.restart()
    assert place.broker._catalog.topic("t").stored.bases.tolist() == [0, 30, 60, 90]
    read = place.appliance.sections.read

    async def read_and_trim(ref: SectionRef) -> bytes:
        data = await read(ref)
        if ref.base_offset == 0:
            await place.broker.topics.trim("t", 70)
        return data

    monkeypatch.setattr(place.appliance.sections, "read", read_and_trim)
    assert await place.values("t", From(offset=0)) == values[:30]


@pytest.fixture
async def goes(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """With a topic in a segment, which is deleted while the first bytes of it are fetched."""
    await place.produce("t", 30)
    await place.tidy()
    await place.restart()
    fetched, deleting = place.store.get_range, [place.broker.topics.delete]

    async def get_range(key: str, start: int, length: int) -> ObjectRange:
        while deleting:
            await deleting.pop()("t")
        return await fetched(key, start, length)

    monkeypatch.setattr(place.store, "get_range", get_range)
    return place


async def test_a_reader_of_a_topic_that_is_deleted_meanwhile_is_told_so(goes: Place) -> None:
    with pytest.raises(TopicNotFoundError):
        await goes.broker.read("t", ReadRequest(From(timestamp_us=1)))


async def test_a_group_gets_what_was_on_its_way_when_the_topic_was_deleted(goes: Place) -> None:
    read = await goes.broker.groups.read("g", "t", ReadRequest(From()), default=From(earliest=True))
    assert (read.result.next_offset, read.lag.bytes) == (30, 0)


async def test_a_topic_deleted_while_its_entries_were_merged_stays_deleted(place: Place) -> None:
    await place.produce("t", 30)
    job = await place.broker.tidying.next_job()
    assert job is not None
    made = await place.tidier._rewriter.rewrite(job)
    await place.broker.topics.delete("t")
    anew = await place.produce("t", 3)
    await place.broker.tidying.switch(job, made)
    assert await place.values("t") == anew
    assert place.broker.tidying.unused() == [stored.key for stored in made.objects]


async def test_the_same_job_is_not_put_in_force_twice(place: Place) -> None:
    await place.produce("t", 30)
    job = await place.broker.tidying.next_job()
    assert job is not None
    made = await place.tidier._rewriter.rewrite(job)
    await place.broker.tidying.switch(job, made)
    with pytest.raises(SwitchRefusedError):
        await place.broker.tidying.switch(job, made)


async def test_a_switch_that_leaves_out_a_topic_is_refused(place: Place) -> None:
    await place.produce("a", 20)
    await place.produce("b", 20)
    job = await place.broker.tidying.next_job()
    assert job is not None
    made = await place.tidier._rewriter.rewrite(job)
    short = type(made)(made.replaced[:1], made.objects)
    with pytest.raises(SwitchRefusedError, match="more in those entries"):
        await place.broker.tidying.switch(job, short)
    assert len(place.broker.tidying.stored) == 0


async def test_what_is_in_the_bucket_is_known_as_the_tidier_works(place: Place) -> None:
    """Of the small objects that a start makes, and their like, nothing is known."""

    async def in_the_bucket() -> int:
        found = [
            info
            for folder in (layout.JOURNAL, layout.SEGMENTS, layout.PACKED, layout.SNAPSHOTS)
            for info in await list_all(place.store, folder)
        ]
        return sum(info.size for info in found)

    sources = place.appliance.cost._sources
    await place.produce("t", 30)
    assert sources.stored_bytes == await in_the_bucket()
    await place.tidy()
    assert sources.stored_bytes == await in_the_bucket()
    for _ in range(3):
        await place.produce("t", 1)
        await place.appliance.snapshots.publish_last()
    await place.produce("t", 40)
    await place.tidy()
    assert place.tidier.counters.entries_removed > 30
    known, real = sources.stored_bytes, await in_the_bucket()
    assert known == pytest.approx(real, rel=0.05)  # epoch entries stay, and are forgotten
    await place.broker.topics.delete("t")
    await place.tidy()
    assert sources.stored_bytes < known


async def test_the_tidiers_requests_are_told_apart(place: Place) -> None:
    await place.produce("t", 30)
    await place.tidy()
    found = place.appliance.cost.report().ledger.this_month.requests
    assert found["tidier PUT"] >= 1
    assert found["tidier GET"] >= 30
    assert found["journal PUT"] >= 30


async def test_merging_asks_for_no_list_while_the_floor_stays(place: Place) -> None:
    def lists() -> int:
        requests = place.appliance.cost.report().ledger.this_month.requests
        return requests.get("tidier LIST", 0) + requests.get("snapshot LIST", 0)

    for _ in range(3):
        await place.produce("t", 1)
        await place.appliance.snapshots.publish_last()
    await place.produce("t", 30)
    await place.tidy()
    removed, before = place.tidier.counters.entries_removed, lists()
    assert removed
    await place.produce("t", 30)
    await place.tidy()
    assert lists() == before
    await place.appliance.snapshots.publish_last()
    await place.tidy()
    assert lists() > before
    assert place.tidier.counters.entries_removed > removed


async def test_entries_of_which_two_do_not_fit_a_job_are_merged_though_one_is_below_the_trigger(
    place: Place,
) -> None:
    await place.restart(segment_bytes="1MiB", tidy_bytes="900KiB")
    draws = random.Random(1)
    values = [draws.randbytes(700 * limits.KIB) for _ in range(6)]
    for value in values:
        await place.put("t", (None, value))
    await place.tidy()
    assert place.broker.tidying.untidied.total_bytes < 900 * limits.KIB
    assert await place.values("t") == values

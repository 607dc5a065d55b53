"""Compactions that others make: only what our own would leave comes into force."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark_seb.arrow.columns import STORED_SCHEMA, ArrowBatches, arrow_schema
from pyspark_seb.arrow.rows import SegmentPlace, segment_of

from seb_appliance import limits
from seb_appliance.broker.upkeep.external_compactions import ExternalCompaction
from seb_appliance.broker.upkeep.tidying import Tidying
from seb_appliance.errors import (
    BadRequestError,
    CompactionNotFoundError,
    CompactionRefusedError,
    OutcomeUnknownError,
    StoreUncertainError,
)
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.storage.stores.object_store import SignedPut
from tests.support.tidied import Place

SETTINGS = {"cleanup": "compact", "dirty_ratio": 0.99, "tombstone_retention_ms": 0}
Rows = list[dict[str, object]]


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(limits, "RETENTION_EVERY_S", -1.0)
    monkeypatch.setattr(limits, "ENTRIES_PER_JOB_MIN", 1)
    place = Place(tmp_path)

    async def signed_put(key: str, length: int, md5: bytes, valid_s: int) -> SignedPut:
        return SignedPut(f"memory:{key}", {"Content-MD5": md5.hex(), "n": f"{length}/{valid_s}"})

    monkeypatch.setattr(place.store, "signed_put", signed_put)
    monkeypatch.setattr("seb_appliance.broker.upkeep.due.Compactions.next", nothing_due)
    await place.start(tidy_after="0ms")
    await place.broker.topics.create("t", TopicSettings(**SETTINGS))
    yield place
    await place.appliance.close()


async def nothing_due(_: object) -> None:
    """Our own compaction does not come first."""


async def merged(place: Place) -> None:
    """All of the topic lies in segments."""
    topic = place.broker._catalog.topic("t")
    while topic.entries_begin < topic.log_end_offset:
        await place.tidier.step()


async def filled(place: Place) -> None:
    await place.put("t", (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"plain"))
    await place.put("t", (b"c", b"1"), (b"c", None), (b"a", b"3"))
    await merged(place)


async def stored(place: Place, found: ExternalCompaction) -> Rows:
    """The records of the range, as a cluster reads them."""
    schema = arrow_schema(STORED_SCHEMA)
    batches = ArrowBatches("t", schema)
    rows: Rows = []
    for section in found.job.sections:
        data = (await place.store.get_range(section.key, section.at, section.length)).data
        for batch in batches.take(data, found.log_start_offset, found.item.last_offset + 1):
            rows += batch.to_pylist()
    return rows + [row for batch in batches.rest() for row in batch.to_pylist()]


def newest(rows: Rows, below: int) -> Rows:
    """What compaction leaves, with all tombstones gone below this offset but the last record."""
    last = {row["key"]: row["offset"] for row in rows}
    return [
        row
        for row in rows
        if row["key"] is None
        or (
            last[row["key"]] == row["offset"]
            and (
                row["value"] is not None
                or row["offset"] >= below
                or row["offset"] == rows[-1]["offset"]
            )
        )
    ]


async def compacted(place: Place, found: ExternalCompaction) -> Rows:
    return newest(await stored(place, found), found.item.tombstones_below)


async def upload(place: Place, found: ExternalCompaction, rows: Rows, **ends: int) -> str:
    """A segment of these rows, stored where we were told."""
    item = found.item
    base, last = ends.get("base", item.base_offset), ends.get("last", item.last_offset)
    where = SegmentPlace(item.topic_id, found.job.bucket_id, base, last)
    records = pa.RecordBatch.from_pylist(rows, arrow_schema(STORED_SCHEMA))
    body = segment_of(where, records)
    elsewhere = place.broker.tidying.external
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    name, given = await elsewhere.upload(found, base, last, len(body), digest)
    await place.store.put(given.key, body)
    return name


async def made(place: Place, wrong: Callable[[Rows], Rows] = lambda rows: rows) -> str:
    """Make a compaction elsewhere and hand it over; what came of it."""
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    rows = wrong(await compacted(place, found))
    elsewhere.hand_over(found, [await upload(place, found, rows)])
    await place.tidier.step()
    return found.reason or found.state


async def test_what_was_made_elsewhere_comes_into_force(place: Place) -> None:
    await filled(place)
    await place.put("t", (b"b", b"later"))
    assert await made(place) == "in_force"
    below = [(1, b"b", b"1"), (3, None, b"plain"), (5, b"c", None)]
    left = [*below, (6, b"a", b"3"), (7, b"b", b"later")]
    assert await place.records("t") == left
    assert [run[:2] for run in place.broker._catalog.topic("t").runs] == [(0, 6)]
    await place.restart(tidy_after="0ms")
    assert await place.records("t") == left
    await merged(place)
    assert await made(place) == "in_force"
    assert [offset for offset, _, _ in await place.records("t")] == [3, 6, 7]
    assert place.tidier.counters.failures == 0


def without_b(rows: Rows) -> Rows:
    return [row for row in rows if row["key"] != b"b"]


def without_a_young_tombstone(rows: Rows) -> Rows:
    """It would go together with what it deletes."""
    return [row for row in rows if row["value"] is not None]


def other_value(rows: Rows) -> Rows:
    return [{**row, "value": b"other"} if row["key"] == b"b" else row for row in rows]


def other_time(rows: Rows) -> Rows:
    return [{**row, "created": row["created"] + 1} for row in rows]  # type: ignore[operator]


def a_record_more(rows: Rows) -> Rows:
    return [{**rows[0], "offset": 0, "key": b"a"}, *rows]


def moved(rows: Rows) -> Rows:
    return [{**rows[0], "offset": 2}, *rows[1:]]


@pytest.mark.parametrize(
    "wrong",
    [without_b, without_a_young_tombstone, other_value, other_time, a_record_more, moved],
)
async def test_anything_else_than_compaction_leaves_is_refused(
    place: Place, wrong: Callable[[Rows], Rows]
) -> None:
    await filled(place)
    before = await place.records("t")
    assert "wrong" in await made(place, wrong)
    assert await place.records("t") == before
    assert place.broker._catalog.topic("t").runs == []


async def test_a_topic_that_changed_meanwhile_stays_as_it_is(place: Place) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    first, second = await elsewhere.begin("t"), await elsewhere.begin("t")
    for found in (first, second):
        rows = await compacted(place, found)
        elsewhere.hand_over(found, [await upload(place, found, rows)])
    await place.tidier.step()
    after = await place.records("t")
    while elsewhere.next() is not None:
        await place.tidier.step()
    assert (first.state, second.state) == ("in_force", "refused")
    assert "already replaced" in second.reason or "changed" in second.reason
    assert await place.records("t") == after


async def test_records_below_the_log_start_are_left_out(place: Place) -> None:
    await filled(place)
    await place.broker.topics.trim("t", 2)
    await merged(place)
    assert await made(place) == "in_force"
    assert [offset for offset, _, _ in await place.records("t")] == [3, 5, 6]


async def test_a_trim_while_it_is_made_is_no_reason_to_refuse(place: Place) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    names = [await upload(place, found, await compacted(place, found))]
    await place.broker.topics.trim("t", 2)
    elsewhere.hand_over(found, names)
    while found.state == "checking":
        await place.tidier.step()
    assert found.state == "in_force", found.reason
    assert [offset for offset, _, _ in await place.records("t")] == [3, 5, 6]


async def test_several_segments_answer_for_the_range_together(place: Place) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    rows = await compacted(place, found)
    below = [row for row in rows if row["offset"] < 4]  # type: ignore[operator]
    above = [row for row in rows if row not in below]
    names = [
        await upload(place, found, below, last=3),
        await upload(place, found, above, base=4),
    ]
    elsewhere.hand_over(found, names)
    await place.tidier.step()
    assert found.state == "in_force", found.reason
    assert [offset for offset, _, _ in await place.records("t")] == [1, 3, 5, 6]


async def test_what_many_records_leave_is_what_a_dictionary_holds(place: Place) -> None:
    dice = random.Random(7)
    expected: dict[bytes, bytes | None] = {}
    for _ in range(40):
        batch = []
        for _ in range(dice.randrange(1, 20)):
            value = None if dice.random() < 0.2 else b"%d" % dice.randrange(10**9)
            batch.append((b"k%d" % dice.randrange(30), value))
        await place.put("t", *batch)
        expected.update(batch)
    await merged(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    rows = await compacted(place, found)
    cuts = sorted(dice.sample(range(1, len(rows)), 3))
    names, base = [], 0
    for begin, end in pairwise([0, *cuts, len(rows)]):
        is_last = end == len(rows)
        last = found.item.last_offset if is_last else int(str(rows[end]["offset"])) - 1
        names.append(await upload(place, found, rows[begin:end], base=base, last=last))
        base = last + 1
    elsewhere.hand_over(found, names)
    await place.tidier.step()
    assert found.state == "in_force", found.reason
    left = [(key, value) for _, key, value in await place.records("t")]
    alive = {key: value for key, value in expected.items() if value is not None}
    assert {key: value for key, value in left if value is not None} == alive
    assert dict(left) == expected


async def test_a_gap_between_segments_is_refused(place: Place) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    rows = await compacted(place, found)
    elsewhere.hand_over(found, [await upload(place, found, rows, last=5)])
    await place.tidier.step()
    assert found.state == "refused"


async def look_for_strays(place: Place) -> None:
    """Condemned and, with no grace time, removed."""
    place.tidier._strays_s = 0.0
    for _ in range(4):
        await place.tidier.step()


async def test_what_is_not_handed_over_is_removed_once_nobody_asks(place: Place) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    name = await upload(place, found, await compacted(place, found))
    key = found.given[name].key
    await look_for_strays(place)
    assert key in await place.keys("_seb/segments/")
    elsewhere.give_up(found)
    await look_for_strays(place)
    assert key not in await place.keys("_seb/segments/")
    with pytest.raises(CompactionRefusedError):
        elsewhere.hand_over(found, [name])


async def test_after_a_restart_nothing_is_left_of_it(place: Place) -> None:
    await filled(place)
    before = await place.records("t")
    found = await place.broker.tidying.external.begin("t")
    name = await upload(place, found, await compacted(place, found))
    key = found.given[name].key
    await place.restart(tidy_after="0ms")
    assert key in await place.keys("_seb/segments/")
    await look_for_strays(place)
    assert key not in await place.keys("_seb/segments/")
    assert await place.records("t") == before
    with pytest.raises(CompactionNotFoundError):
        place.broker.tidying.external.get("t", found.compaction_id)


async def test_a_switch_whose_end_was_not_seen_is_found_in_force(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    elsewhere.hand_over(found, [await upload(place, found, await compacted(place, found))])
    switch = Tidying.switch

    async def unseen(*given: Any) -> None:
        await switch(*given)
        raise OutcomeUnknownError("The caller's deadline has passed.")

    with monkeypatch.context() as patched:
        patched.setattr(Tidying, "switch", unseen)
        with pytest.raises(OutcomeUnknownError):
            await place.tidier.step()
    assert found.state == "checking"
    while found.state == "checking":
        await place.tidier.step()
    assert found.state == "in_force"
    assert [offset for offset, _, _ in await place.records("t")] == [1, 3, 5, 6]


async def test_what_cannot_be_checked_again_and_again_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    elsewhere.hand_over(found, [await upload(place, found, await compacted(place, found))])

    async def away(*_: object) -> None:
        raise StoreUncertainError("the bucket does not answer")

    monkeypatch.setattr(place.tidier._rewriter, "rewrite", away)
    for _ in range(5):
        assert found.state == "checking"
        with pytest.raises(StoreUncertainError):
            await place.tidier.step()
    assert (found.state, found.reason) == ("refused", "the bucket does not answer")


async def test_a_name_that_was_not_given_is_refused(place: Place) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    with pytest.raises(BadRequestError):
        elsewhere.hand_over(found, ["00" * 8])
    with pytest.raises(CompactionNotFoundError):
        elsewhere.get("other", found.compaction_id)


async def test_a_topic_that_keeps_everything_is_not_compacted_elsewhere(place: Place) -> None:
    await filled(place)
    await place.broker.topics.change("t", {"cleanup": "delete"})
    with pytest.raises(CompactionRefusedError, match="cleanup"):
        await place.broker.tidying.external.begin("t")


async def test_a_compaction_that_nobody_asks_for_is_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(place)
    elsewhere = place.broker.tidying.external
    found = await elsewhere.begin("t")
    assert elsewhere.holds(found.item.topic_id)
    monkeypatch.setattr(limits, "EXTERNAL_COMPACTION_IDLE_S", -1.0)
    assert not elsewhere.holds(found.item.topic_id)
    with pytest.raises(CompactionNotFoundError):
        elsewhere.get("t", found.compaction_id)


async def test_what_may_come_into_force_yet_is_not_called_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(place)
    tidying = place.broker.tidying
    found = await tidying.external.begin("t")
    rows = await compacted(place, found)
    tidying.external.hand_over(found, [await upload(place, found, rows)])
    operate, under_way = tidying._writes.operate, []

    async def give_up_waiting(*arguments: Any) -> bool:
        under_way.append(asyncio.ensure_future(operate(*arguments)))
        await asyncio.sleep(0)
        raise OutcomeUnknownError("it took too long")

    monkeypatch.setattr(tidying._writes, "operate", give_up_waiting)
    found.attempts = 4
    with pytest.raises(OutcomeUnknownError):
        await place.tidier.step()
    assert found.state == "checking"
    await asyncio.gather(*under_way)
    monkeypatch.setattr(tidying._writes, "operate", operate)
    while found.state == "checking" and await place.tidier.step():
        pass
    assert (found.state, found.reason) == ("in_force", "")

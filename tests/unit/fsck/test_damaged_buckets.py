"""One bucket for each kind of damage: it is found, named, and told apart from others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from seb_appliance.errors import StoreUnusableError
from tests.support.whole_bucket import Whole, check, codes


def flip(path: Path, at: int) -> None:
    body = bytearray(path.read_bytes())
    body[at] ^= 1
    path.write_bytes(body)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


# --- whole ones ---


async def test_a_whole_bucket_is_clean(whole: Whole) -> None:
    report = await check(whole, local=True, full=True)
    assert report.findings.problems == []
    counts = report.counts
    assert counts["topics"] == 2
    assert counts["snapshots"] == 3
    assert counts["snapshots_compared"] >= 2
    assert counts["objects_read"] == counts["journal_entries"] + counts["segments"]
    assert counts["key_index_sections"] > 0
    assert counts["segments"] == len(whole.keys("packed/*"))


async def test_a_check_changes_nothing(tidied: Whole) -> None:
    def seen() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_size, path.stat().st_mtime_ns)
            for folder in (tidied.bucket, tidied.data)
            for path in folder.rglob("*")
            if path.is_file()
        }

    before = seen()
    await check(tidied, local=True)
    assert seen() == before


async def test_a_quick_check_reads_no_object_whole(tidied: Whole) -> None:
    flip(tidied.keys("packed/*")[0], 100)
    report = await check(tidied, quick=True)
    assert (codes(report), report.counts["objects_read"]) == ([], 0)


async def test_an_empty_folder_is_no_bucket(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with pytest.raises(StoreUnusableError, match="is not the bucket"):
        await check(Whole("A", tmp_path / "bucket", tmp_path))


# --- journal entries ---


async def test_a_flipped_bit_in_a_record_is_told_by_topic_and_offset(young: Whole) -> None:
    entry = young.entries[10]
    flip(entry, -9)
    report = await check(young)
    assert codes(report) == ["entry_damaged", "records_lost"]
    lost = next(p for p in report.findings.problems if p.code == "records_lost")
    assert lost.subject == young.key(entry)
    assert lost.topic in {"orders", "iot.kitchen"}
    assert lost.offsets is not None
    assert lost.offsets[0] == lost.offsets[1]


async def test_a_flipped_bit_in_a_header_breaks_the_log_there(young: Whole) -> None:
    entry = young.entries[-5]
    flip(entry, 20)
    report = await check(young)
    assert {"entry_damaged", "log_broken"} <= set(codes(report))
    broken = next(p for p in report.findings.problems if p.code == "log_broken")
    assert broken.subject == young.key(entry)


async def test_an_entry_cut_short_is_damage(young: Whole) -> None:
    cut(young.entries[10])
    assert "entry_damaged" in codes(await check(young))


async def test_a_missing_entry_above_the_floor_breaks_the_log(whole: Whole) -> None:
    entry = whole.entries[-3]
    entry.unlink()
    report = await check(whole)
    assert "log_broken" in codes(report)
    broken = next(p for p in report.findings.problems if p.code == "log_broken")
    assert broken.subject == whole.key(entry)


async def test_a_missing_entry_below_the_floor_that_holds_records_is_loss(young: Whole) -> None:
    entry = young.entries[10]
    entry.unlink()
    report = await check(young)
    assert codes(report) == ["records_lost"]
    assert report.findings.problems[0].subject == young.key(entry)


async def test_a_missing_newest_entry_below_a_snapshot_cuts_the_log_short(young: Whole) -> None:
    young.entries[-1].unlink()
    assert "log_cut_short" in codes(await check(young))


async def test_local_state_that_knows_more_than_the_bucket_cuts_the_log_short(
    young: Whole,
) -> None:
    young.entries[-1].unlink()
    for snapshot in young.keys("snapshots/*"):
        snapshot.unlink()
    report = await check(young, local=True)
    problems = [(p.code, p.subject) for p in report.findings.problems]
    assert ("log_cut_short", "state.sqlite") in problems


async def test_a_missing_epoch_entry_is_told(tidied: Whole) -> None:
    first = tidied.entries[0]
    assert first.name == "00000000000000000001.seb"
    first.unlink()
    report = await check(tidied)
    assert codes(report) == ["epoch_entry_missing"]
    assert report.findings.problems[0].subject == tidied.key(first)


async def test_an_entry_copied_to_the_next_key_breaks_the_log(young: Whole) -> None:
    last = young.entries[-1]
    copy = last.with_name(f"{int(last.stem) + 1:020d}.seb")
    shutil.copyfile(last, copy)
    report = await check(young)
    assert codes(report) == ["entry_damaged", "log_broken"]
    assert {p.subject for p in report.findings.problems} == {young.key(copy)}


async def test_an_entry_of_another_bucket_is_told(young: Whole, made_tidied: Whole) -> None:
    other = made_tidied.entries[0]
    target = young.bucket / made_tidied.key(other)
    shutil.copyfile(other, target)
    report = await check(young)
    details = [p.detail for p in report.findings.problems if p.subject == young.key(target)]
    assert any("another bucket" in detail for detail in details)


# --- segments and packed objects ---


async def test_a_flipped_bit_in_a_segment_names_the_records_that_are_lost(tidied: Whole) -> None:
    packed = tidied.keys("packed/*")[0]
    flip(packed, 120)
    report = await check(tidied)
    assert codes(report) == ["records_lost", "segment_damaged"]
    lost = [p for p in report.findings.problems if p.code == "records_lost"]
    assert [p.subject for p in lost] == [tidied.key(packed)]
    assert lost[0].topic is not None  # one section: the others can be read


async def test_a_segment_cut_short_loses_all_of_it(tidied: Whole) -> None:
    cut(tidied.keys("packed/*")[0])
    report = await check(tidied)
    lost = [p for p in report.findings.problems if p.code == "records_lost"]
    assert {p.topic for p in lost} == {"orders", "iot.kitchen"}


async def test_a_missing_segment_is_told_by_topics_and_offsets(tidied: Whole) -> None:
    packed = tidied.keys("packed/*")[0]
    packed.unlink()
    report = await check(tidied)
    assert codes(report) == ["records_lost"]
    assert {p.detail for p in report.findings.problems} == {"the object is not in the bucket"}
    assert {p.topic for p in report.findings.problems} == {"orders", "iot.kitchen"}


async def test_another_segment_at_a_segments_key_is_told(tidied: Whole) -> None:
    one, *_, other = tidied.keys("packed/*")
    assert one != other
    shutil.copyfile(other, one)
    report = await check(tidied)
    assert codes(report) == ["records_lost", "segment_damaged"]


async def test_a_copy_of_a_segment_under_another_name_is_a_leftover(tidied: Whole) -> None:
    packed = tidied.keys("packed/*")[0]
    copy = packed.with_name(packed.name[:-20] + "0123456789abcdef.seb")
    shutil.copyfile(packed, copy)
    os.utime(copy, (0, 0))
    report = await check(tidied)
    assert codes(report) == ["object_unreferenced"]
    assert report.findings.problems[0].subject == tidied.key(copy)


async def test_an_unreferenced_object_may_lie_about_for_the_grace_time(tidied: Whole) -> None:
    packed = tidied.keys("packed/*")[0]
    copy = packed.with_name(packed.name[:-20] + "0123456789abcdef.seb")
    shutil.copyfile(packed, copy)
    report = await check(tidied, grace_ms=3_600_000)
    assert codes(report) == []


# --- snapshots ---


async def test_a_flipped_bit_in_a_snapshot_is_told(tidied: Whole) -> None:
    snapshot = tidied.keys("snapshots/*")[1]
    flip(snapshot, 200)
    report = await check(tidied)
    assert codes(report) == ["snapshot_damaged"]
    assert report.findings.problems[0].subject == tidied.key(snapshot)


async def test_a_snapshot_under_anothers_seq_is_told(tidied: Whole) -> None:
    snapshot = tidied.keys("snapshots/*")[0]
    seq, _, rest = snapshot.name.partition("-")
    snapshot.rename(snapshot.with_name(f"{int(seq) - 1:020d}-{rest}"))
    report = await check(tidied)
    assert codes(report) == ["snapshot_differs"]


async def test_the_log_is_followed_from_the_next_snapshot_when_the_oldest_is_damaged(
    tidied: Whole,
) -> None:
    flip(tidied.keys("snapshots/*")[0], 200)
    report = await check(tidied)
    assert codes(report) == ["snapshot_damaged"]
    assert report.counts["snapshots_compared"] == 1


# --- bucket.json, claims, bases, strangers ---


async def test_a_missing_bucket_json_is_told_and_the_rest_is_checked(young: Whole) -> None:
    (young.bucket / "_seb" / "bucket.json").unlink()
    report = await check(young)
    assert codes(report) == ["bucket_info_missing"]
    assert report.counts["objects_read"] > 40


async def test_a_damaged_bucket_json_is_told(young: Whole) -> None:
    (young.bucket / "_seb" / "bucket.json").write_bytes(b"{")
    assert codes(await check(young)) == ["bucket_info_damaged"]


async def test_in_mode_b_a_missing_bucket_json_is_a_leftover(claimed: Whole) -> None:
    (claimed.bucket / "_seb" / "bucket.json").unlink()
    assert codes(await check(claimed)) == ["bucket_info_differs"]


async def test_a_damaged_base_breaks_the_log(claimed: Whole) -> None:
    base = claimed.keys("bases/*")[-1]
    flip(base, 30)
    report = await check(claimed)
    assert codes(report) == ["log_broken"]
    assert report.findings.problems[0].subject == claimed.key(base)


@pytest.mark.parametrize(
    "key", ["snapshots/old.zip", "packed/x", "claims/none", "mine", "journal/0/1"]
)
async def test_a_strangers_object_is_a_leftover(tidied: Whole, key: str) -> None:
    path = tidied.bucket / "_seb" / key
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"?")
    report = await check(tidied)
    assert codes(report) == ["foreign_object"]
    assert report.findings.problems[0].subject == f"_seb/{key}"

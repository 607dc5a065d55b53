"""The state of a lake table, as events change it."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.lake.due import by_offset, expired, stale, to_merge
from seb_appliance.broker.lake.names import names_in_use
from seb_appliance.broker.topics.topic import Run, Topic
from seb_appliance.formats.operations import StoredSection, object_id_of
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.lake import SECOND_US, Story, data_file

MERGED = StoredSection(1, 0, 19, 20, 0, 99, 1, 5, 5)


def names(story: Story) -> list[str]:
    return [one.file.name for one in by_offset(story.table)]


def test_commits_add_files_and_move_the_next_offset():
    story = Story()
    story.commit(data_file(0, 9))
    story.commit(data_file(10, 14))
    head = story.table.head
    assert (head.number, head.next_offset, head.newest.records) == (3, 15, 15)
    assert names(story) == ["data/0-9.parquet", "data/10-14.parquet"]
    assert [one.file.name for one in story.table.listed()] == ["data/10-14.parquet"]
    assert [m.added_records for m in head.manifests] == [10, 5]


def test_a_replaced_file_stays_until_no_kept_snapshot_has_it():
    story = Story()
    story.commit(data_file(0, 9), keep=2)
    story.commit(data_file(10, 19), keep=2)
    both = data_file(0, 19)
    story.commit(both, removed=tuple(names(story)), keep=2)
    assert names(story) == [both.name]
    assert story.table.head.newest.records == 20
    assert len(story.table.files) == 3
    story.commit(data_file(20, 21), keep=2)
    assert len(story.table.files) == 2


def test_a_manifest_lists_what_its_commit_removed_and_what_moved_into_it():
    story = Story()
    story.commit(data_file(0, 9), data_file(10, 19))
    story.commit(removed=("data/0-9.parquet",))
    (manifest,) = story.table.head.manifests
    assert (manifest.removed_files, manifest.existing_files, manifest.added_files) == (1, 1, 0)
    story.commit(data_file(20, 29))
    assert story.table.head.newest.records == 20


def test_manifests_are_merged_once_there_are_many():
    story = Story()
    for i in range(limits.TABLE_MANIFESTS_MAX + 1):
        story.commit(data_file(i, i))
    (manifest,) = story.table.head.manifests
    assert manifest.living_files == limits.TABLE_MANIFESTS_MAX + 1


def test_time_never_goes_back_in_a_table():
    story = Story()
    story.commit(data_file(0, 0))
    story.now_us -= 500 * SECOND_US
    story.commit(data_file(1, 1))
    times = [ms for _, ms in story.table.head.times]
    assert times == sorted(set(times))


def test_only_what_a_kept_snapshot_needs_is_in_use():
    story = Story()
    for i in range(25):
        story.commit(data_file(i, i), keep=3)
    is_used = names_in_use(story.table)
    assert is_used("metadata/version-hint.text")
    assert is_used("data/0-0.parquet")
    assert is_used("metadata/snap-26.avro")
    assert is_used("metadata/snap-24.avro")
    assert not is_used("metadata/snap-23.avro")
    assert is_used(f"_delta_log/{19:020d}.checkpoint.parquet")
    assert not is_used(f"_delta_log/{18:020d}.json")
    assert not is_used("data/of-a-refused-insert.parquet")


@pytest.mark.parametrize("count", [1, 7])
def test_few_young_files_are_not_merged(count: int):
    story = Story()
    story.commit(*(data_file(i, i) for i in range(count)))
    assert to_merge(by_offset(story.table), 64 * limits.MIB, lambda _: 0) == []


def test_eight_small_neighbours_are_merged():
    story = Story()
    story.commit(data_file(0, 0, length=32 * limits.MIB), *(data_file(i, i) for i in range(1, 9)))
    found = to_merge(by_offset(story.table), 64 * limits.MIB, lambda _: 0)
    assert [one.file.first_offset for one in found] == list(range(1, 9))


def test_a_larger_older_file_waits_until_the_younger_ones_are_as_large():
    story = Story()
    story.commit(data_file(0, 0, length=9_000), *(data_file(i, i) for i in range(1, 9)))
    found = to_merge(by_offset(story.table), 64 * limits.MIB, lambda _: 0)
    assert [one.file.first_offset for one in found] == list(range(1, 9))
    story.commit(data_file(9, 9))
    found = to_merge(by_offset(story.table), 64 * limits.MIB, lambda _: 0)
    assert found[0].file.first_offset == 0


def test_files_of_two_days_are_not_merged():
    day_us = 86_400 * SECOND_US
    story = Story()
    story.commit(*(data_file(i, i, created_us=(i // 4) * day_us) for i in range(8)))
    assert to_merge(by_offset(story.table), 64 * limits.MIB, lambda _: 0) == []


def test_retention_removes_whole_files_from_the_oldest_on():
    story = Story()
    story.commit(*(data_file(i, i, created_us=i * SECOND_US) for i in range(5)))
    found = expired(by_offset(story.table), 3_000, lambda us: 6 * SECOND_US - us)
    assert [one.file.first_offset for one in found] == [0, 1, 2]
    assert expired(by_offset(story.table), None, lambda us: us) == []


def test_only_a_compaction_of_a_files_range_makes_it_stale():
    story = Story()
    story.commit(data_file(0, 9, as_of=5), data_file(10, 19, as_of=5))
    topic = Topic(1, "t", 0, TopicSettings(), log_end_offset=20)

    def named() -> str | None:
        one = stale(by_offset(story.table), topic, story.table.head.schema, rebuild=False)
        return one and one.file.name

    topic.stored.replace(0, 19, [(object_id_of(9, 0), MERGED)])  # merged, not compacted
    assert named() is None
    topic.runs = [Run(0, 9, 4)]
    assert named() is None
    topic.runs = [Run(0, 9, 4), Run(19, 25, 6)]
    assert named() == "data/10-19.parquet"

"""Which entries and objects the tidier merges next, for all allowed settings and sizes."""

from __future__ import annotations

from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.ports import ObjectRef
from seb_appliance.broker.settings import TidySettings
from seb_appliance.broker.upkeep.due import due_entries, due_objects, overdue_s
from seb_appliance.broker.upkeep.stored_objects import LivingObject
from seb_appliance.settings import SETTINGS
from seb_appliance.storage.objects.rewriting import _groups, _Input, _Run

NOW_US = 1_800_000_000_000_000
SWITCH_BYTES = 400  # of an entry that only puts a job in force, whose entries held no records
RANGES = {setting.name: setting.range for setting in SETTINGS}


def numbers(setting: str) -> st.SearchStrategy[int]:
    low, high = RANGES[setting]
    return st.one_of(st.sampled_from([low, high]), st.integers(low, high))


TIDY_SETTINGS = st.builds(
    TidySettings,
    segment_bytes=numbers("segment_bytes"),
    trigger_bytes=numbers("tidy_bytes"),
    after_ms=numbers("tidy_after"),
    young_ms=numbers("tidy_young"),
)
SIZES = st.one_of(
    st.integers(200, 2_000),
    st.integers(200, limits.ENTRY_BYTES_MAX),
    st.sampled_from([8 * limits.MIB - 1, 8 * limits.MIB, 16 * limits.MIB, limits.ENTRY_BYTES_MAX]),
)


@st.composite
def backlogs(draw: st.DrawFn) -> deque[tuple[int, int, int]]:
    """(seq, bytes, created_us), oldest first, up to two months old."""
    pattern = draw(st.lists(SIZES, min_size=1, max_size=12))
    repeated = draw(st.sampled_from([1, 7, 100]))
    step_us = draw(st.sampled_from([0, 1_000, 60_000_000, 3_600_000_000]))
    sizes = pattern * repeated
    return deque((i, size, NOW_US - (len(sizes) - i) * step_us) for i, size in enumerate(sizes, 1))


def test_a_full_job_is_due_though_its_entries_are_smaller_than_the_trigger() -> None:
    settings = TidySettings(segment_bytes=16 * limits.MIB, trigger_bytes=8 * limits.MIB)
    entries = [(1, 7 * limits.MIB, 0), (2, 10 * limits.MIB, 0), *((n, 200, 0) for n in range(3, 9))]
    assert due_entries(entries, settings, NOW_US) == 1


@given(backlogs(), TIDY_SETTINGS)
def test_a_backlog_above_a_threshold_always_yields_a_job(
    entries: deque[tuple[int, int, int]], settings: TidySettings
) -> None:
    old = [one for one in entries if one[2] <= NOW_US - settings.young_ms * 1000]
    is_large = sum(length for _, length, _ in old) >= settings.trigger_bytes
    is_old = bool(old) and old[0][2] <= NOW_US - settings.after_ms * 1000
    count = due_entries(entries, settings, NOW_US)
    assert count <= min(len(old), limits.ENTRIES_PER_JOB_MAX)
    if is_large or (is_old and len(old) >= limits.ENTRIES_PER_JOB_MIN):
        assert count > 0
    assert count <= 1 or sum(one[1] for one in old[:count]) <= settings.segment_bytes


@given(backlogs(), TIDY_SETTINGS)
def test_jobs_make_progress_until_nothing_is_due(
    entries: deque[tuple[int, int, int]], settings: TidySettings
) -> None:
    jobs, most = 0, 2 * len(entries) + 2
    while count := due_entries(entries, settings, NOW_US):
        for _ in range(count):
            entries.popleft()
        # The switch of a job is an entry, too; here one that is old at once.
        entries.append((0, SWITCH_BYTES, NOW_US - settings.young_ms * 1000))
        jobs += 1
        assert jobs <= most, f"{len(entries)} entries are left"


@given(backlogs(), TIDY_SETTINGS)
def test_a_backlog_that_was_due_long_ago_is_overdue_and_no_other_is(
    entries: deque[tuple[int, int, int]], settings: TidySettings
) -> None:
    long_us = int(limits.TIDY_OVERDUE_S * 1_000_000) + settings.young_ms * 1000
    was_due = sum(one[1] for one in entries if one[2] <= NOW_US - long_us) >= settings.trigger_bytes
    found_s = overdue_s(entries, settings, NOW_US)
    assert (found_s >= limits.TIDY_OVERDUE_S) == was_due
    assert found_s == 0 or was_due


@given(
    st.lists(st.integers(100, 20 * limits.MIB), min_size=1, max_size=3),
    st.sampled_from([1, 16, 30]),
    numbers("segment_bytes"),
    st.integers(1, 60),
)
@example([5 * limits.MIB], 16, 256 * limits.MIB, 16)
def test_merging_objects_always_leaves_fewer_of_them(
    pattern: list[int], repeated: int, segment_bytes: int, topics: int
) -> None:
    """Each object holds one section; those of a topic lie apart, so that none of them join."""
    objects = [
        LivingObject(ObjectRef(i, str(i)), size + 200, 1, size)
        for i, size in enumerate(pattern * repeated, 1)
    ]
    due = due_objects(objects, TidySettings(segment_bytes=segment_bytes))
    data = memoryview(bytes(max(pattern)))
    runs = [
        _Run(i % topics, [_Input(i % topics, 2 * i, 2 * i, data[: one.living_bytes])])  # type: ignore[arg-type]
        for i, one in enumerate(due)
    ]
    assert not due or len(list(_groups(runs, segment_bytes))) < len(due)

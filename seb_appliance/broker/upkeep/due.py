"""Decides what is due: entries and objects to merge, records to delete, segments to compact.

Compaction works in levels, like a log-structured merge tree. A run has no record key twice; newer
records are dirty. The newest runs are merged with what came after them, as far as that is
`dirty_ratio` of both: runs grow by a factor, and a record is rewritten about as often as the topic
can be divided by it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from seb_appliance import limits
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.settings import BrokerSettings, TidySettings
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import StoredRows, Topic, pinned_below
from seb_appliance.broker.upkeep.rewrite_jobs import Compaction, SectionPlace
from seb_appliance.broker.upkeep.stored_objects import LivingObject
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import in_slices


def due_entries(
    waiting: Iterable[tuple[int, int, int]], settings: TidySettings, now_us: int
) -> int:
    """How many of the oldest entries the next job merges; 0 if none is due. `waiting`: seq, bytes
    of the object and created_us of each, oldest first."""
    young_us = now_us - settings.young_ms * 1000
    after_us = now_us - settings.after_ms * 1000
    count = size_bytes = 0
    is_full = is_old = False
    for _, length, created_us in waiting:
        if created_us > young_us:
            break
        too_many = count >= limits.ENTRIES_PER_JOB_MAX
        # A full job is due however little it holds, or the entries behind it would never be.
        is_full = count > 0 and (too_many or size_bytes + length > settings.segment_bytes)
        if is_full:
            break
        is_old = is_old or created_us <= after_us
        count += 1
        size_bytes += length
    is_large = size_bytes >= min(settings.trigger_bytes, settings.segment_bytes)
    is_worth_it = is_old and count >= limits.ENTRIES_PER_JOB_MIN
    return count if is_full or is_large or is_worth_it else 0


def overdue_s(
    waiting: Iterable[tuple[int, int, int]], settings: TidySettings, now_us: int
) -> float:
    """For how long `trigger_bytes` of entries that are not young have waited; 0 if not longer than
    a busy tidier may need. Independent of `due_entries`."""
    size_bytes = 0
    for _, length, created_us in islice(waiting, limits.ENTRIES_PER_JOB_MAX):
        late_s = (now_us - created_us) / 1_000_000 - settings.young_ms / 1000
        if late_s < limits.TIDY_OVERDUE_S:
            break
        size_bytes += length
        if size_bytes >= settings.trigger_bytes:
            return late_s
    return 0.0


def due_objects(objects: Iterable[LivingObject], settings: TidySettings) -> list[LivingObject]:
    """Many small objects, or one that holds mostly removed records."""
    target = settings.segment_bytes
    # Merging does not change what is large enough for a segment of its own.
    small_bytes = min(target // limits.SMALL_OBJECTS_MAX, limits.OWN_SEGMENT_BYTES_MIN)
    small: list[LivingObject] = []
    sections = size_bytes = 0
    for found in objects:
        if found.length >= limits.REPACK_BYTES_MIN and 2 * found.living_bytes < found.length:
            return [found]
        if found.living_bytes < small_bytes:
            small.append(found)
    if len(small) < limits.SMALL_OBJECTS_MAX:
        return []
    for i, found in enumerate(small[: limits.SMALL_OBJECTS_AT_ONCE]):
        sections += found.sections
        size_bytes += found.living_bytes
        # One entry must be able to name them, and one object to hold them.
        if sections > limits.SECTIONS_PER_SWITCH_MAX or size_bytes > target:
            return small[: max(i, 2)]
    return small[: limits.SMALL_OBJECTS_AT_ONCE]


async def kept_from(index: SectionIndex, topic: Topic, clock: LogClock) -> int:
    """The log start offset after retention, which removes whole sections only. Age counts from
    `created` of a section, never from a client's timestamps. Raises as `SectionIndex.rows_of`."""
    settings = topic.settings
    start = topic.log_start_offset
    if settings.retention_ms is not None:
        start = await _first_younger(index, topic, start, clock, settings.retention_ms * 1000)
    if settings.retention_bytes is not None:
        start = await _within_bytes(index, topic, start, settings.retention_bytes)
    return start


async def _first_younger(
    index: SectionIndex, topic: Topic, offset: int, clock: LogClock, age_us: int
) -> int:
    """The first section from `offset` on that is younger than `age_us`."""
    # A trim meanwhile removes the rows of `offset`.
    while (offset := max(offset, topic.log_start_offset)) < topic.log_end_offset:
        _, rows, end = await index.rows_of(topic, offset)
        row = rows.row_of(offset)
        cutoff_us = clock.cutoff_us(age_us, rows.created_us[row])
        first = bisect_right(rows.created_us, cutoff_us, lo=row)
        if first < len(rows) and rows.bases[first] < end:
            return max(offset, rows.bases[first])
        offset = min(rows.end, end)
    return offset


async def _within_bytes(index: SectionIndex, topic: Topic, offset: int, most: int) -> int:
    """The first section from `offset` on with at most `most` bytes from there to the end."""
    while (offset := max(offset, topic.log_start_offset)) < topic.log_end_offset:
        spare = await index.bytes_from(topic, offset) - most
        if spare <= 0:
            return offset
        if offset < topic.log_start_offset:
            continue
        _, rows, end = await index.rows_of(topic, offset)
        row = rows.row_of(offset)
        first = bisect_left(rows.bytes_before, rows.bytes_before[row] + spare, lo=row + 1)
        if first < len(rows) and rows.bases[first] < end:
            return rows.bases[first]
        offset = min(rows.end, end)
    return offset


@dataclass(frozen=True, slots=True)
class CompactionProgress:
    """Of the segments of all compacted topics. `dirty_bytes` were never compacted."""

    topics: int
    dirty_bytes: int
    total_bytes: int


# What to compact together, and where it lies.
Plan: TypeAlias = tuple[tuple[Compaction, ...], tuple[SectionPlace, ...]]


class Compactions:
    """Plans compactions from the rows in memory. `is_held`: whether others compact a topic (id)."""

    def __init__(
        self,
        catalog: Catalog,
        clock: LogClock,
        settings: BrokerSettings,
        is_held: Callable[[int], bool],
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._settings = settings
        self._segment_bytes = settings.tidy.segment_bytes
        self._is_held = is_held
        self._failed: dict[int, float] = {}  # topic id → when it failed; tried again alone

    async def next(self) -> Plan | None:
        """What is due: one large topic, or several small ones; None when nothing is."""
        topics = await self._due_topics()
        # Checked again without a break: rows may have moved between the slices.
        due = [(topic, rows) for topic in topics if (rows := self._due_rows(topic)) is not None]
        return self._plan(due) if due else None

    async def _due_topics(self) -> list[Topic]:
        small: list[Topic] = []
        size_bytes = sections = 0
        async for topic in in_slices(self._catalog.topics()):
            rows = self._due_rows(topic)
            if rows is None:
                continue
            needs = _bytes(topic.stored, *rows)
            is_large = needs >= min(limits.OWN_SEGMENT_BYTES_MIN, self._segment_bytes)
            if is_large or topic.topic_id in self._failed:
                return [topic]
            size_bytes, sections = size_bytes + needs, sections + rows[1] - rows[0]
            full = size_bytes > self._segment_bytes or sections > limits.COMPACTION_SECTIONS_MAX
            if full or len(small) == limits.COMPACTION_TOPICS_MAX:
                return small
            small.append(topic)
        return small

    def failed(self, compactions: Sequence[Compaction]) -> None:
        """Others go first; these are tried again later, one by one."""
        now_s = self._clock.monotonic_s()
        self._failed.update((item.topic_id, now_s) for item in compactions)

    def done(self, compactions: Sequence[Compaction]) -> None:
        for item in compactions:
            self._failed.pop(item.topic_id, None)

    async def progress(self) -> CompactionProgress:
        topics = dirty_bytes = total_bytes = 0
        async for topic in in_slices(list(self._catalog.unsorted())):
            if topic.settings.compacts:
                topics += 1
                dirty_bytes += _bytes(topic.stored, _clean_rows(topic), len(topic.stored))
                total_bytes += topic.stored.total_bytes
        return CompactionProgress(topics, dirty_bytes, total_bytes)

    def _due_rows(self, topic: Topic) -> tuple[int, int] | None:
        if topic.deleted or not topic.settings.compacts or not len(topic.stored):
            return None
        failed_s = self._failed.get(topic.topic_id, float("-inf"))
        rests = self._clock.monotonic_s() < failed_s + limits.COMPACTION_FAILED_REST_S
        if rests or self._is_held(topic.topic_id):
            return None
        settings = self._settings.effective(topic.settings)
        return due_rows(topic, settings, self._clock, self._segment_bytes)

    def _plan(self, due: Sequence[tuple[Topic, tuple[int, int]]]) -> Plan:
        compactions, places = [], []
        # An object holds its topics in the order of their ids.
        for topic, (begin, end) in sorted(due, key=lambda item: item[0].topic_id):
            settings = self._settings.effective(topic.settings)
            compactions.append(compaction_of(topic, begin, end, settings, self._clock))
            places += [place_of(self._catalog, topic, row) for row in range(begin, end)]
        return tuple(compactions), tuple(places)


def compaction_of(
    topic: Topic, begin: int, end: int, settings: TopicSettings, clock: LogClock
) -> Compaction:
    """Of the rows from `begin` up to `end` of the topic's segments. `settings`: effective."""
    until_us = tombstones_until_us(topic, begin, settings, clock)
    # The end of the run that reaches the log start: below it, nothing older of any record key is
    # left. A tombstone beyond it must outlive by one compaction the record that it deletes, or a
    # reader of that record may miss the tombstone.
    runs, below = topic.runs, 0
    if runs and runs[0].base <= topic.log_start_offset:
        below = runs[0].last + 1
    return Compaction(
        topic.topic_id,
        topic.name,
        topic.stored.bases[begin],
        topic.stored.end_of(end - 1) - 1,
        until_us if begin == 0 and not inherits(topic) else None,
        below,
    )


def rows_for_all(topic: Topic, settings: TopicSettings, clock: LogClock) -> tuple[int, int]:
    """The end (exclusive) of all rows that are old enough to be compacted into one run; and how
    many of their bytes are dirty, or lie in another run than the first."""
    stored = topic.stored
    end = _old_enough(topic, 0, settings, clock)
    first = 0
    if topic.runs and end:
        whole = stored.end_of(end - 1) - 1 <= topic.runs[0].last
        first = end if whole else bisect_right(stored.bases, topic.runs[0].last)
    return end, _bytes(stored, min(first, end), end)


def place_of(catalog: Catalog, topic: Topic, row: int) -> SectionPlace:
    ref = catalog.section_ref(topic, topic.stored, row)
    key = catalog.stored.get(-topic.stored.seqs[row]).ref.key
    return SectionPlace(
        key, topic.topic_id, ref.base_offset, ref.last_offset, ref.at, ref.length, ref.crc
    )


def due_rows(
    topic: Topic, settings: TopicSettings, clock: LogClock, segment_bytes: int
) -> tuple[int, int] | None:
    """The rows of the topic's segments (begin, end exclusive) to compact into one run; None when
    that does not pay yet. `settings`: effective."""
    assert settings.dirty_ratio is not None, settings
    stored = topic.stored
    pinned = pinned_rows(topic)
    clean = max(pinned, _clean_rows(topic))
    end = _old_enough(topic, clean, settings, clock)
    end = min(end, clean + limits.COMPACTION_SECTIONS_MAX)
    if end <= clean:
        return None
    begin, size_bytes = clean, _bytes(stored, clean, end)
    for run in reversed(topic.runs):
        first = 0 if run is topic.runs[0] else bisect_left(stored.bases, run.base)
        first = max(pinned, min(first, begin))
        run_bytes = _bytes(stored, first, begin)
        too_clean = size_bytes < settings.dirty_ratio * (size_bytes + run_bytes)
        if too_clean or end - first > limits.COMPACTION_SECTIONS_MAX:
            break
        begin, size_bytes = first, size_bytes + run_bytes
    # A small part of a large topic waits until there is more of it.
    return (begin, end) if begin == pinned or size_bytes >= segment_bytes else None


def _old_enough(topic: Topic, begin: int, settings: TopicSettings, clock: LogClock) -> int:
    """The end of the rows from `begin` on that are old enough to be compacted, and not delayed."""
    assert settings.min_compaction_lag_ms is not None, settings
    created_us = topic.stored.created_us  # never decreases within a topic
    if begin == len(created_us):
        return begin
    lag_us = settings.min_compaction_lag_ms * 1000
    end = bisect_right(created_us, clock.cutoff_us(lag_us, created_us[begin]))
    if topic.delayed_from < topic.stored.end:  # queues have not handed it out yet: it must stay
        end = min(end, bisect_right(topic.stored.bases, topic.delayed_from) - 1)
    return max(begin, end)


def tombstones_until_us(topic: Topic, begin: int, settings: TopicSettings, clock: LogClock) -> int:
    """Tombstones in the rows from `begin` on that were stored until then may be removed."""
    assert settings.tombstone_retention_ms is not None, settings
    oldest_us = topic.stored.created_us[begin]
    return clock.cutoff_us(settings.tombstone_retention_ms * 1000, oldest_us)


def inherits(topic: Topic) -> bool:
    """Whether it shares older records with the topic that it was forked from."""
    return topic.log_start_offset < topic.fork_offset


def pinned_rows(topic: Topic) -> int:
    """How many of the first rows must stay for forks, with the unreadable rows behind them."""
    below = pinned_below(topic.needs)
    if below == 0:
        return 0
    behind = bisect_left(topic.stored.bases, below)
    return max(behind, topic.stored.row_of(topic.log_start_offset))


def _clean_rows(topic: Topic) -> int:
    """How many of the first rows were compacted. A row that reaches beyond the last run was merged
    with newer records."""
    if not topic.runs:
        return 0
    stored, last = topic.stored, topic.runs[-1].last
    clean = bisect_right(stored.bases, last)
    return clean - 1 if clean and stored.end_of(clean - 1) - 1 > last else clean


def _bytes(stored: StoredRows, begin: int, end: int) -> int:
    behind = stored.bytes_before[end] if end < len(stored) else stored.total_bytes
    return behind - stored.bytes_before[begin] if begin < len(stored) else 0

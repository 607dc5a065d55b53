"""Which entries and objects are due to be merged: decided on their sizes and ages alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import islice

from seb_appliance import limits
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.settings import TidySettings
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.upkeep.stored_objects import LivingObject


def due_entries(
    waiting: Iterable[tuple[int, int, int]], settings: TidySettings, now_us: int
) -> int:
    """How many of the oldest entries the next job merges, 0 if none is due. `waiting`, oldest
    first: seq, bytes of the object, created_us."""
    young_us = now_us - settings.young_ms * 1000
    after_us = now_us - settings.after_ms * 1000
    count = size_bytes = 0
    is_full = is_old = False
    for _, length, created_us in waiting:
        if created_us > young_us:
            break
        too_many = count >= limits.ENTRIES_PER_JOB_MAX
        # However little a full job holds: without it, what waits behind would wait for ever.
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
    """For how long `trigger_bytes` of entries have waited that are not young; 0 when they have not,
    or not longer than a busy tidier may need. Does not rest on what `due_entries` decides."""
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
    """Small objects that have become many, or one that holds mostly what is gone."""
    target = settings.segment_bytes
    # What is large enough for a segment of its own gets one again: merging it changes nothing.
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
        # One entry names them all, and one object is to hold them.
        if sections > limits.SECTIONS_PER_SWITCH_MAX or size_bytes > target:
            return small[: max(i, 2)]
    return small[: limits.SMALL_OBJECTS_AT_ONCE]


async def kept_from(index: SectionIndex, topic: Topic, clock: LogClock) -> int:
    """The log start offset that retention asks for, which may be the present one. Retention removes
    whole sections only.

    By age, `created` of a section decides, which never decreases within a topic: a client's
    timestamps cannot keep a record, nor make it go. Raises as `SectionIndex.rows_of`.
    """
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
    while (offset := _or_start(topic, offset)) < topic.log_end_offset:
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
    while (offset := _or_start(topic, offset)) < topic.log_end_offset:
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


def _or_start(topic: Topic, offset: int) -> int:
    # A trim meanwhile removes the rows of `offset`.
    return max(offset, topic.log_start_offset)

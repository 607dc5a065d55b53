"""Retention: where the log of a topic should begin. Whole sections go, never a part of one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from seb_appliance.broker.index import SectionIndex
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.topic import Topic


async def kept_from(index: SectionIndex, topic: Topic, clock: LogClock) -> int:
    """The log start offset that the topic's retention asks for; it may be the one that it has.

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
    """The topic may have been trimmed while we looked further: nothing answers for `offset`."""
    return max(offset, topic.log_start_offset)

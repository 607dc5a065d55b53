"""Retention: where the log of a topic should begin. Whole sections go, never a part of one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from seb_appliance import limits
from seb_appliance.broker.index import SectionIndex
from seb_appliance.broker.topic import Topic
from seb_appliance.clock import Clock


async def kept_from(index: SectionIndex, topic: Topic, now_us: int | None) -> int:
    """The log start offset that the topic's retention asks for; it may be the one that it has.

    By age, `created` of a section decides, which never decreases within a topic: a client's
    timestamps cannot keep a record, nor make it go. `now_us` None: nothing goes by age now.
    Raises as `SectionIndex.rows_of`.
    """
    settings = topic.settings
    start = topic.log_start_offset
    if settings.retention_ms is not None and now_us is not None:
        cutoff_us = now_us - settings.retention_ms * 1000
        start = await _first_younger(index, topic, start, cutoff_us)
    if settings.retention_bytes is not None:
        start = await _within_bytes(index, topic, start, settings.retention_bytes)
    return start


async def _first_younger(index: SectionIndex, topic: Topic, offset: int, cutoff_us: int) -> int:
    """The first section from `offset` on that was made after `cutoff_us`."""
    while (offset := _or_start(topic, offset)) < topic.log_end_offset:
        _, rows, end = await index.rows_of(topic, offset)
        row = rows.row_of(offset)
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


class AgeClock:
    """The time that retention by age goes by. After a jump of the wall clock it pauses for an hour,
    so that a clock that was wrong for a moment deletes nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_us = self._ahead_us()
        self._paused_until_s = 0.0

    def now_us(self) -> int | None:
        """None while it pauses."""
        ahead_us, now_s = self._ahead_us(), self._clock.monotonic_s()
        if abs(ahead_us - self._offset_us) > limits.CLOCK_JUMP_US_MAX:
            self._paused_until_s = now_s + limits.CLOCK_JUMP_PAUSE_S
        self._offset_us = ahead_us
        return self._clock.wall_us() if now_s >= self._paused_until_s else None

    def _ahead_us(self) -> int:
        """How far the wall clock is ahead of the monotonic one."""
        return self._clock.wall_us() - int(self._clock.monotonic_s() * 1_000_000)

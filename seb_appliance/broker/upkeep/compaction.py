"""Compaction: which sections of which topics are worth it now.

Levels, as a log-structured merge has them. What compaction went over lies in runs, each without a
record key twice; what came since is dirty. Runs are merged with what came after them, the newest
first, as far as that is `dirty_ratio` of both: so runs grow by a factor from one to the next, and a
record is rewritten about as often as the topic can be divided by it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seb_appliance import limits
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import StoredRows, Topic, pinned_below
from seb_appliance.broker.upkeep.rewrite_jobs import Compaction, SectionPlace
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import in_slices


@dataclass(frozen=True, slots=True)
class Plan:
    """What to compact together, and where it lies."""

    compactions: tuple[Compaction, ...]
    places: tuple[SectionPlace, ...]


@dataclass(frozen=True, slots=True)
class CompactionProgress:
    """Over all topics that are compacted. `dirty_bytes`: what no compaction went over yet, of
    `total_bytes`; segments only."""

    topics: int
    dirty_bytes: int
    total_bytes: int


class Compactions:
    """Decides on rows in memory alone: cheap enough to be asked every few seconds. `is_held`: of a
    topic id, whether others compact it."""

    def __init__(
        self,
        catalog: Catalog,
        clock: LogClock,
        settings: BrokerSettings,
        segment_bytes: int,
        is_held: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._settings = settings
        self._segment_bytes = segment_bytes
        self._is_held = is_held
        self._failed: dict[int, float] = {}  # topic id → when it failed; tried again alone

    async def next(self) -> Plan | None:
        """What is due: one large topic, or several that are small; None when nothing is."""
        topics = await self._due_topics()
        # Looked at again in one go: rows may have moved while the event loop had its turns.
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
        """It came to nothing: others go first, and these are tried again later, one by one."""
        for item in compactions:
            self._failed[item.topic_id] = self._clock.monotonic_s()

    def done(self, compactions: Sequence[Compaction]) -> None:
        for item in compactions:
            self._failed.pop(item.topic_id, None)

    def progress(self) -> CompactionProgress:
        topics = [topic for topic in self._catalog.topics() if topic.settings.compacts]
        stored = [topic.stored for topic in topics]
        dirty = sum(_bytes(t.stored, _clean_rows(t), len(t.stored)) for t in topics)
        return CompactionProgress(len(topics), dirty, sum(rows.total_bytes for rows in stored))

    def _due_rows(self, topic: Topic) -> tuple[int, int] | None:
        if topic.deleted or not topic.settings.compacts or not len(topic.stored):
            return None
        failed_s = self._failed.get(topic.topic_id)
        now_s = self._clock.monotonic_s()
        if failed_s is not None and now_s < failed_s + limits.COMPACTION_FAILED_REST_S:
            return None
        if self._is_held(topic.topic_id):
            return None
        settings = self._settings.effective(topic.settings)
        return due_rows(topic, settings, self._clock, self._segment_bytes)

    def _plan(self, due: Sequence[tuple[Topic, tuple[int, int]]]) -> Plan:
        compactions, places = [], []
        # An object holds its topics in the order of their ids, which need not be that of names.
        for topic, (begin, end) in sorted(due, key=lambda item: item[0].topic_id):
            stored = topic.stored
            settings = self._settings.effective(topic.settings)
            until_us = tombstones_until_us(topic, begin, settings, self._clock)
            last = stored.end_of(end - 1) - 1
            compactions.append(
                Compaction(
                    topic.topic_id,
                    topic.name,
                    stored.bases[begin],
                    last,
                    until_us if begin == 0 and not inherits(topic) else None,
                    tombstones_below(topic),
                )
            )
            places += [place_of(self._catalog, topic, row) for row in range(begin, end)]
        return Plan(tuple(compactions), tuple(places))


@dataclass(frozen=True, slots=True)
class AllRows:
    """The rows up to `end`, exclusive; `dirty_bytes` of them were not compacted, or lie in another
    run than the others."""

    end: int
    dirty_bytes: int


def rows_for_all(topic: Topic, settings: TopicSettings, clock: LogClock) -> AllRows:
    """All of the topic's segments but what is too young: to be compacted into one run."""
    stored = topic.stored
    end = _old_enough(topic, 0, settings, clock)
    first = 0
    if topic.runs and end:
        whole = stored.end_of(end - 1) - 1 <= topic.runs[0][1]
        first = end if whole else bisect_right(stored.bases, topic.runs[0][1])
    return AllRows(end, _bytes(stored, min(first, end), end))


def place_of(catalog: Catalog, topic: Topic, row: int) -> SectionPlace:
    """Where row `row` of the topic's segments lies."""
    ref = catalog.section_ref(topic, topic.stored, row)
    key = catalog.stored.get(-topic.stored.seqs[row]).ref.key
    return SectionPlace(
        key, topic.topic_id, ref.base_offset, ref.last_offset, ref.at, ref.length, ref.crc
    )


def due_rows(
    topic: Topic, settings: TopicSettings, clock: LogClock, segment_bytes: int
) -> tuple[int, int] | None:
    """The rows of the topic's segments (begin, end exclusive) that should be compacted into one
    run; None when that would not pay yet. `settings`: with the defaults filled in."""
    assert settings.dirty_ratio is not None, settings
    stored = topic.stored
    pinned = pinned_rows(topic)
    clean = max(pinned, _clean_rows(topic))
    end = _old_enough(topic, clean, settings, clock)
    end = min(end, clean + limits.COMPACTION_SECTIONS_MAX)
    if end <= clean:
        return None
    begin, size_bytes = clean, _bytes(stored, clean, end)
    for base, _ in reversed(topic.runs):
        first = 0 if base == topic.runs[0][0] else bisect_left(stored.bases, base)
        first = max(pinned, min(first, begin))
        run_bytes = _bytes(stored, first, begin)
        too_clean = size_bytes < settings.dirty_ratio * (size_bytes + run_bytes)
        if too_clean or end - first > limits.COMPACTION_SECTIONS_MAX:
            break
        begin, size_bytes = first, size_bytes + run_bytes
    # A small part of a large topic waits until there is more of it.
    return (begin, end) if begin == pinned or size_bytes >= segment_bytes else None


def _old_enough(topic: Topic, begin: int, settings: TopicSettings, clock: LogClock) -> int:
    """The end of the rows from `begin` on that may be compacted."""
    assert settings.min_compaction_lag_ms is not None, settings
    created_us = topic.stored.created_us  # never decreases within a topic
    if begin == len(created_us):
        return begin
    lag_us = settings.min_compaction_lag_ms * 1000
    return bisect_right(created_us, clock.cutoff_us(lag_us, created_us[begin]))


def tombstones_until_us(topic: Topic, begin: int, settings: TopicSettings, clock: LogClock) -> int:
    """A tombstone in the rows from `begin` on may go if it was stored until then."""
    assert settings.tombstone_retention_ms is not None, settings
    oldest_us = topic.stored.created_us[begin]
    return clock.cutoff_us(settings.tombstone_retention_ms * 1000, oldest_us)


def inherits(topic: Topic) -> bool:
    """Whether older records of it lie in a topic that it was forked from."""
    return topic.log_start_offset < topic.fork_offset


def tombstones_below(topic: Topic) -> int:
    """The offset below which nothing older of any record key is left: the end of the run that
    reaches the log start. A tombstone beyond it must outlive what it deletes by a compaction. If
    both went at once, who has read the older record just before would never hear of it."""
    if not topic.runs or topic.runs[0][0] > topic.log_start_offset:
        return 0
    return topic.runs[0][1] + 1


def pinned_rows(topic: Topic) -> int:
    """How many of the first rows forks need as they are; what lies behind them, and nobody can read
    any more, is not worth it."""
    below = pinned_below(topic.needs)
    if below == 0:
        return 0
    behind = bisect_left(topic.stored.bases, below)
    return max(behind, topic.stored.row_of(topic.log_start_offset))


def _clean_rows(topic: Topic) -> int:
    """How many of the first rows compaction went over. A row that reaches beyond the last run was
    merged with what came behind it."""
    if not topic.runs:
        return 0
    stored, last = topic.stored, topic.runs[-1][1]
    clean = bisect_right(stored.bases, last)
    return clean - 1 if clean and stored.end_of(clean - 1) - 1 > last else clean


def _bytes(stored: StoredRows, begin: int, end: int) -> int:
    """Of the rows from `begin` up to `end`."""
    behind = stored.bytes_before[end] if end < len(stored) else stored.total_bytes
    return behind - stored.bytes_before[begin] if begin < len(stored) else 0

"""How a read is cut into tasks, and how a trigger's limit is shared among topics. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark_seb.offsets import TopicRange

# A task reads about so many: long enough to be worth starting, short enough to be done again.
RECORDS_PER_TASK: Final = 500_000


def split(ranges: Sequence[TopicRange], min_partitions: int) -> list[TopicRange]:
    """The same offsets in parts of at most RECORDS_PER_TASK, and at least `min_partitions` of them
    where there are records enough. Empty ranges go."""
    total = sum(map(len, ranges))
    if not total:
        return []
    most = min(RECORDS_PER_TASK, max(1, total // min_partitions))
    parts = []
    for whole in ranges:
        count = -(-len(whole) // most)
        for i in range(count):
            start = whole.start + len(whole) * i // count
            end = whole.start + len(whole) * (i + 1) // count
            parts.append(TopicRange(whole.topic, whole.topic_id, start, end))
    return parts


def share(backlogs: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many records of each topic a trigger takes: in proportion to what waits, `limit` in all,
    at least one of each topic where something waits (so that none starves)."""
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    return {
        topic: min(backlog, max(1, backlog * limit // total)) for topic, backlog in backlogs.items()
    }

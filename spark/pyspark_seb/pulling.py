"""Pulling by committed offset: which range is next, kept stable until it is committed.

The range that is being pulled is noted in the metadata of the group's committed offset, by
compare-and-set, before the first record is read. A run that died is followed by one that pulls the
very same range, so that it writes over what the first one left, and nothing is there twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark_seb.client import Appliance
from pyspark_seb.errors import TopicChangedError
from pyspark_seb.offsets import (
    CommittedOffset,
    TopicRange,
    checked_start,
    commit,
    find_topics,
    group_topics,
)
from pyspark_seb.options import ReadOptions


@dataclass(frozen=True, slots=True)
class Pull:
    """What a run is to pull, and where the group stands: at each range's start, or before it when
    records were lost."""

    ranges: list[TopicRange]
    committed: dict[str, CommittedOffset]


def begin(appliance: Appliance, options: ReadOptions, most: int | None) -> Pull:
    """Note what is pulled, or find what was noted and never finished. `most`: records of a topic.
    Raises ApplianceError (`offset_conflict`: another run was quicker), RecordsGoneError,
    TopicChangedError."""
    assert options.group is not None
    standing = group_topics(appliance, options.group)
    ranges, committed, noted = [], {}, {}
    for log in find_topics(appliance, options.topics).values():
        found = standing.get(log.topic)
        if found is not None and found["topic_id"] != log.topic_id:
            raise TopicChangedError(f"topic {log.topic!r} was made anew since the group read it")
        at = log.log_start_offset if found is None else int(found["committed_offset"])
        start = checked_start(log, at, fail_on_data_loss=options.fail_on_data_loss)
        end = _noted_end(found["metadata"]) if found is not None else None
        if end is None or end <= start:
            end = log.log_end_offset if most is None else min(log.log_end_offset, start + most)
            if found is None or end > start:
                noted[log.topic] = (CommittedOffset(log.topic_id, at), found is None, end)
        if end > start:
            ranges.append(TopicRange(log.topic, log.topic_id, start, end))
            committed[log.topic] = CommittedOffset(log.topic_id, at)
    if noted:
        commit(
            appliance,
            options.group,
            {topic: at for topic, (at, _, _) in noted.items()},
            expected={topic: None if new else at.offset for topic, (at, new, _) in noted.items()},
            metadata={topic: _note(end) for topic, (_, _, end) in noted.items()},
        )
    return Pull(ranges, committed)


def finish(appliance: Appliance, group: str, pull: Pull) -> None:
    """All of it is written: commit it, if the group still stands where it stood. Raises
    ApplianceError (`offset_conflict`: another run has committed)."""
    ends = {found.topic: CommittedOffset(found.topic_id, found.end) for found in pull.ranges}
    expected = {topic: at.offset for topic, at in pull.committed.items()}
    commit(appliance, group, ends, expected=expected)


def _note(end: int) -> str:
    return json.dumps({"pulling_until": end})


def _noted_end(metadata: str) -> int | None:
    """The end that an unfinished run has noted; None when there is none."""
    try:
        return int(json.loads(metadata)["pulling_until"])
    except (ValueError, KeyError, TypeError):
        return None

"""One run of a job that pulls: its range is noted in the group before its first record is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark_seb.answers import GroupTopic
from pyspark_seb.client import Appliance
from pyspark_seb.errors import TopicChangedError
from pyspark_seb.options import (
    CommittedOffset,
    ReadOptions,
    TopicLog,
    TopicRange,
    checked_start,
    commit,
    find_topics,
    group_topics,
    start_of,
)


@dataclass(slots=True)
class Pull:
    """The ranges of one run. Each is noted in the metadata of the group's committed offset, by
    compare-and-set, before its first record is read. A run after a failed one pulls the same range
    under the same name, so that nothing is stored twice.

    `committed`: where the group stands: at each range's start, or before it if records were lost.
    `noted`: the range as first noted, which names it (retention may have removed its first
    records). `resumed`: topics whose range an earlier run noted and did not commit."""

    ranges: list[TopicRange] = field(default_factory=list)
    committed: dict[str, CommittedOffset] = field(default_factory=dict)
    noted: dict[str, tuple[int, int]] = field(default_factory=dict)
    resumed: set[str] = field(default_factory=set)


def begin(
    appliance: Appliance,
    options: ReadOptions,
    most: int | None,
    check: Callable[[Pull], None] = lambda _: None,
    *,
    note: bool = True,
) -> Pull:
    """Note what is pulled, or find what was noted and never finished. `most`: records of a topic.
    `check`: raises before anything is noted. `note`: false to note nothing. Raises ApplianceError
    (`offset_conflict`: another run was quicker), RecordsGoneError, TopicChangedError."""
    assert options.group is not None
    standing = group_topics(appliance, options.group)
    pull, new, expected = Pull(), {}, {}
    for log in find_topics(appliance, options.topics).values():
        found = standing.get(log.topic)
        at = _standing_at(appliance, options, log, found)
        start = checked_start(log, at, fail_on_data_loss=options.fail_on_data_loss)
        noted = _noted(found["metadata"], at) if found is not None else None
        if noted is not None and noted[1] > start:
            pull.resumed.add(log.topic)
        else:
            end = log.log_end_offset if most is None else min(log.log_end_offset, start + most)
            noted = start, end
            if found is None or noted[1] > start:
                new[log.topic] = CommittedOffset(log.topic_id, at)
                expected[log.topic] = None if found is None else at
        if noted[1] > start:
            pull.ranges.append(TopicRange(log.topic, log.topic_id, start, noted[1]))
            pull.committed[log.topic] = CommittedOffset(log.topic_id, at)
        pull.noted[log.topic] = noted
    check(pull)
    if new and note:
        notes = {topic: _note(*pull.noted[topic]) for topic in new}
        commit(appliance, options.group, new, expected=expected, metadata=notes)
    return pull


def finish(appliance: Appliance, group: str, pull: Pull) -> None:
    """All of it is written: commit it, if the group still stands where it stood. Raises
    ApplianceError (`offset_conflict`: another run has committed)."""
    ends = {found.topic: CommittedOffset(found.topic_id, found.end) for found in pull.ranges}
    expected = {topic: at.offset for topic, at in pull.committed.items()}
    commit(appliance, group, ends, expected=expected)


def _standing_at(
    appliance: Appliance, options: ReadOptions, log: TopicLog, found: GroupTopic | None
) -> int:
    if found is None:
        return start_of(appliance, log, options, None)
    if found["topic_id"] != log.topic_id:
        raise TopicChangedError(f"topic {log.topic!r} was created again since the group read it")
    return found["committed_offset"]


def _note(start: int, end: int) -> str:
    return json.dumps({"pulling_from": start, "pulling_until": end})


def _noted(metadata: str, committed: int) -> tuple[int, int] | None:
    """The range that an unfinished run has noted; None when there is none. Earlier releases noted
    only its end, and named the range by the committed offset."""
    try:
        note = json.loads(metadata)
        return int(note.get("pulling_from", committed)), int(note["pulling_until"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

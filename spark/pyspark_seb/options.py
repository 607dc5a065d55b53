"""What was asked of `format("seb")`: the values of options, the topics, and the offsets."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark_seb import declared
from pyspark_seb.answers import Group, GroupTopic, Manifest, Record, Records, Topic, Topics
from pyspark_seb.client import Appliance
from pyspark_seb.declared import Place, Use
from pyspark_seb.errors import (
    ApplianceError,
    BadOptionError,
    RecordsGoneError,
    TopicChangedError,
)
from seb_appliance import limits


@dataclass(frozen=True, slots=True)
class ReadOptions:
    url: str
    token_file: str
    topics: tuple[str, ...]
    group: str | None
    starting: Place
    has_starting: bool  # the user said where
    ending: Place
    max_records_per_trigger: int | None
    min_records_per_trigger: int
    max_trigger_delay_s: float
    min_partitions: int
    records_per_task: int
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    headers_as_array: bool
    record_keys: tuple[bytes, ...] | None
    fail_on_compaction: bool
    is_direct: bool


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`topic`: where records go whose row names no topic. `producer_id`: of a batch that may be run
    again. `checkpoint`: of a stream, as Spark tells it."""

    url: str
    token_file: str
    topic: str | None
    producer_id: str | None = None
    checkpoint: str | None = None


def read_options(given: Mapping[str, str], use: Use | None = None) -> ReadOptions:
    """`use`: what they are given for, if it is known: an option without effect is then told on
    stderr, and an end of a stream is refused. Raises BadOptionError."""
    options = declared.recognized(given, declared.READ)
    group = options.get(declared.GROUP)
    starting = options.get(declared.STARTING)
    if starting is None:
        starting = Place("committed" if group else "earliest")
    wanted = {starting.everywhere, *(starting.by_topic or {}).values()}
    if "committed" in wanted and group is None:
        raise BadOptionError("startingOffsets=committed needs the option group")
    if use is not None:
        _check_use(options, use)
        if use == "batch" and group is not None and "committed" not in wanted:
            say(f"the option group has no effect: {options.used(declared.STARTING)} is given")
    columns = options.get(declared.SHOWN) or declared.COLUMNS
    if options.get(declared.WITH_HEADERS) is False:
        columns = tuple(name for name in columns if name != "headers")
    return ReadOptions(
        url=options.needed(declared.URL),
        token_file=options.needed(declared.TOKEN_FILE),
        topics=options.needed(declared.TOPICS),
        group=group,
        starting=starting,
        has_starting=options.get(declared.STARTING) is not None,
        ending=options.get(declared.ENDING) or Place("latest"),
        max_records_per_trigger=options.get(declared.MOST),
        min_records_per_trigger=options.get(declared.LEAST) or 1,
        max_trigger_delay_s=options.get(declared.DELAY) or 900.0,
        min_partitions=options.get(declared.MIN_PARTITIONS) or 1,
        records_per_task=options.get(declared.TASK_RECORDS) or RECORDS_PER_TASK,
        fail_on_data_loss=options.get(declared.FAIL_ON_LOSS) is not False,
        columns=columns,
        headers_as_array=options.get(declared.HEADERS_AS) == "array",
        record_keys=options.get(declared.RECORD_KEYS),
        fail_on_compaction=options.get(declared.ON_COMPACTION) is not False,
        is_direct=options.get(declared.TRANSPORT) == "direct",
    )


def _check_use(options: declared.Given, use: Use) -> None:
    for name in options.useless(use):
        if name.startswith("ending"):
            raise BadOptionError(f"{name} is of batches: a stream ends when it is stopped")
        say(f"the option {name} has no effect in a {use}")


def say(text: str) -> None:
    """To the driver's log: Spark has no other way for a source in Python."""
    print(f"seb: {text}", file=sys.stderr)  # noqa: T201


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises BadOptionError."""
    options = declared.recognized(given, ("write",))
    checkpoint = {name.lower(): value for name, value in given.items()}.get("checkpointlocation")
    return WriteOptions(
        options.needed(declared.URL),
        options.needed(declared.TOKEN_FILE),
        options.get(declared.TOPIC),
        options.get(declared.PRODUCER_ID),
        checkpoint,
    )


@dataclass(frozen=True, slots=True)
class TopicLog:
    """A topic as it is now. A topic that is created again under its name has another `topic_id`.
    `last_entry`: the journal entry that has all records below the log end, with those before it."""

    topic: str
    topic_id: int
    log_start_offset: int
    log_end_offset: int
    is_compacted: bool = False
    last_entry: str | None = None


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Offsets start ≤ o < end of one topic. `compacted_seq`: when a part of them was compacted last
    as of the plan, as the manifest has it; None: any time will do."""

    topic: str
    topic_id: int
    start: int
    end: int
    compacted_seq: int | None = None

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    topic_id: int
    offset: int


def find_topics(appliance: Appliance, wanted: Iterable[str]) -> dict[str, TopicLog]:
    """The topics of names and patterns, by name. Raises ApplianceError for a name that is not."""
    found: dict[str, TopicLog] = {}
    for name in wanted:
        if name.startswith("/"):  # a regular expression
            every = appliance.get("/v1/topics").json(Topics)["topics"]
            listed = [one for one in every if re.fullmatch(name[1:-1], one["topic"])]
        elif "*" in name:
            listed = appliance.get("/v1/topics", pattern=name).json(Topics)["topics"]
        else:
            listed = [appliance.get(f"/v1/topics/{name}").json(Topic)]
        found |= {log.topic: log for log in map(_log_of, listed)}
    return dict(sorted(found.items()))


def _log_of(item: Topic) -> TopicLog:
    """Raises ApplianceError."""
    offsets = item["log_start_offset"], item["log_end_offset"]
    if not 0 <= offsets[0] <= offsets[1] <= limits.OFFSET_MAX:
        why = f"it describes a log with the offsets {offsets[0]} to {offsets[1]}"
        raise ApplianceError("the answer", 200, "unknown", why, {})
    is_compacted = "compact" in item["effective_settings"]["cleanup"]
    return TopicLog(item["topic"], item["topic_id"], *offsets, is_compacted, item.get("last_entry"))


def check_entry(appliance: Appliance, topic: str, entry: str) -> None:
    """`entry`: the last one of the topic when its offsets were kept. Raises TopicChangedError if
    the journal does not have it any more."""
    try:
        appliance.get(f"/v1/entries/{entry}")
    except ApplianceError as error:
        if error.code != "entry_not_found":
            raise
        raise TopicChangedError(
            f"the journal does not have entry {entry} any more, up to which topic {topic!r} was "
            "read: the appliance was restored as of an earlier time, and what it stored since then "
            "has offsets that were read before"
        ) from error


def group_topics(appliance: Appliance, group: str) -> dict[str, GroupTopic]:
    """What the API tells of each topic of a group; nothing for a group that is not there."""
    try:
        topics = appliance.get(f"/v1/groups/{group}").json(Group)["topics"]
    except ApplianceError as error:
        if error.code == "group_not_found":
            return {}
        raise
    return {item["topic"]: item for item in topics}


def committed_offsets(appliance: Appliance, group: str) -> dict[str, CommittedOffset]:
    """Where the group stands, by topic."""
    return {
        topic: CommittedOffset(item["topic_id"], item["committed_offset"])
        for topic, item in group_topics(appliance, group).items()
    }


def commit(
    appliance: Appliance, group: str, offsets: dict[str, CommittedOffset], **members: object
) -> None:
    """Commit all of them, or none. `members`: of the request, as `expected`. Raises
    ApplianceError."""
    content = {
        "offsets": {topic: at.offset for topic, at in offsets.items()},
        "topic_ids": {topic: at.topic_id for topic, at in offsets.items()},
        **members,
    }
    appliance.send("PUT", f"/v1/groups/{group}/offsets", content)


def resolve_ranges(
    appliance: Appliance, options: ReadOptions
) -> tuple[list[TopicRange], dict[str, CommittedOffset]]:
    """What a batch reads, and where its group stands. Raises SebSparkError."""
    topics = find_topics(appliance, options.topics)
    committed = committed_offsets(appliance, options.group) if options.group else {}
    ranges = []
    for log in topics.values():
        start = start_of(appliance, log, options, committed.get(log.topic))
        end = max(start, end_of(appliance, log, options))
        seq = None
        if log.is_compacted and options.fail_on_compaction:
            seq = compacted_seq(appliance, log.topic, start, end)
        ranges.append(TopicRange(log.topic, log.topic_id, start, end, seq))
    return ranges, committed


def compacted_seq(appliance: Appliance, topic: str, start: int, end: int) -> int:
    """The journal entry that compacted a part of the offsets last; 0 if none did."""
    if start >= end:
        return 0
    answer = appliance.get(f"/v1/topics/{topic}/manifest", offset=start, until=end)
    found: Manifest = answer.json(Manifest)
    return found.get("compacted_seq", 0)


def start_of(
    appliance: Appliance, log: TopicLog, options: ReadOptions, committed: CommittedOffset | None
) -> int:
    """Raises BadOptionError, RecordsGoneError, TopicChangedError."""
    wanted = options.starting.of(log.topic)
    if wanted == "committed":
        if committed is None:
            return log.log_start_offset
        if committed.topic_id != log.topic_id:
            raise TopicChangedError(
                f"topic {log.topic!r} was created again since the group read it"
            )
        offset = committed.offset
    else:
        offset = _offset_of(appliance, log, wanted)
    return checked_start(log, offset, fail_on_data_loss=options.fail_on_data_loss)


def end_of(appliance: Appliance, log: TopicLog, options: ReadOptions) -> int:
    """Raises BadOptionError for an end beyond the log."""
    end = _offset_of(appliance, log, options.ending.of(log.topic))
    if end > log.log_end_offset:
        raise BadOptionError(
            f"endingOffsets: {end} is beyond the log end {log.log_end_offset} of {log.topic!r}"
        )
    return end


def checked_start(log: TopicLog, offset: int, *, fail_on_data_loss: bool) -> int:
    """`offset`, or the log start when the records between are gone and need not be there.
    Raises RecordsGoneError, TopicChangedError."""
    if offset > log.log_end_offset:
        raise TopicChangedError(
            f"offset {offset} is beyond the log end {log.log_end_offset} of topic {log.topic!r}"
        )
    if offset >= log.log_start_offset:
        return offset
    if fail_on_data_loss:
        raise RecordsGoneError(log.topic, offset, log.log_start_offset)
    return log.log_start_offset


def _offset_of(appliance: Appliance, log: TopicLog, text: str) -> int:
    if text == "earliest":
        return log.log_start_offset
    if text == "latest":
        return log.log_end_offset
    if text.startswith("latest-"):
        back = int(text.removeprefix("latest-"))
        return max(log.log_start_offset, log.log_end_offset - back)
    if not text.startswith("@"):
        return int(text)
    return offset_since(appliance, log.topic, text, log.log_end_offset)


def offset_since(appliance: Appliance, topic: str, text: str, end: int) -> int:
    """The first offset below `end` with the time `@…` or a later one; `end` if there is none."""
    path = f"/v1/topics/{topic}/records"
    found = appliance.get(path, offset=text, until=end, max_records=1, format="json")
    records: list[Record] = found.json(Records)["records"]
    return records[0]["offset"] if records else end


# A task reads about so many: long enough to be worth starting, short enough to be done again.
RECORDS_PER_TASK: Final = 500_000
TASKS_MAX: Final = 100_000  # of a batch: Spark's driver holds all of them


def split(
    ranges: Sequence[TopicRange], min_partitions: int, records_per_task: int = RECORDS_PER_TASK
) -> list[TopicRange]:
    """The same offsets in parts of at most `records_per_task`, and at least `min_partitions` of
    them where there are records enough; in about TASKS_MAX larger parts, if they would be more.
    Empty ranges go."""
    total = sum(map(len, ranges))
    if not total:
        return []
    most = min(records_per_task, max(1, total // min_partitions))
    most = max(most, -(-total // TASKS_MAX))
    parts = []
    for whole in ranges:
        count = -(-len(whole) // most)
        for i in range(count):
            start = whole.start + len(whole) * i // count
            end = whole.start + len(whole) * (i + 1) // count
            parts.append(replace(whole, start=start, end=end))
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

"""Streaming: Spark's checkpoint is the truth, the group a published copy that also pins the start.

The offset of a stream, as its checkpoint has it: `{"orders": {"topic_id": 3, "offset": 1044,
"last_entry": "1207-5e0b…"}}`. The entry tells whether the appliance still has the records that were
read. Checkpoints of earlier releases, and the first start of a topic, have none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_seb.answers import Page
from pyspark_seb.client import Appliance
from pyspark_seb.errors import ApplianceError, BadOptionError, TopicChangedError
from pyspark_seb.options import (
    CommittedOffset,
    ReadOptions,
    TopicLog,
    TopicRange,
    check_entry,
    checked_start,
    commit,
    committed_offsets,
    find_topics,
    read_options,
    say,
    share,
    split,
    start_of,
)
from pyspark_seb.reading.ranges import RangePartition, partitions_of, read_partition

# A stream that waits asks so seldom, and a stop of the query takes so long at most.
WAIT_S: Final = 2
# Fewer records wait than a batch needs.
HELD_S: Final = 0.5
# Names of topics are asked for so often at least, while nothing comes.
LISTED_S: Final = 10.0
_MANY: Final = "/v1/records"

StreamOffset: TypeAlias = dict[str, Any]


class SebStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives on the driver as long as its query; others are made where tasks read."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        # Nothing is checked here: Spark hides what is raised while a stream reader is made.
        self._given = given
        self._schema = schema
        self._made: tuple[ReadOptions, Appliance] | None = None
        self._initial: StreamOffset | None = None
        self._target: StreamOffset | None = None  # of a run that ends with what is there now
        self._published: StreamOffset = {}
        self._batch_s = -math.inf  # when the last batch was planned
        self._seen: StreamOffset | None = None  # log ends, when they were last asked for
        self._idle_at: StreamOffset | None = None  # nothing was there, when last asked
        self._watch = Watch()

    def __getstate__(self) -> dict[str, Any]:
        return {"_given": self._given, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_given"], state["_schema"])  # type: ignore[misc]

    # --- the driver ---

    def initialOffset(self) -> StreamOffset:  # noqa: N802 - Spark's
        """Where a stream without a checkpoint begins. Spark asks again, and does not remember the
        answer until the first batch is through: so the group remembers it."""
        if self._initial is None:
            self._initial = self._pinned()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        options = self._options
        if options.max_records_per_trigger is not None:
            return ReadMaxRows(options.max_records_per_trigger)
        least = options.min_records_per_trigger
        return ReadMinRows(least) if least > 1 else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        self._target = _ends(self._topics())

    def latestOffset(  # noqa: N802 - Spark's
        self, start: StreamOffset | None = None, limit: ReadLimit | None = None
    ) -> StreamOffset:
        """Where the next batch ends. Spark asks when everything before `start` is through, also
        after the last batch of a run: so this is where the group is told."""
        if start is None:
            start = self.initialOffset()
        self._publish(start)
        if start == self._idle_at and self._target is None:  # Spark asks again after 10 ms
            if any(backlogs(start, self._seen or {}).values()):
                time.sleep(HELD_S)
            elif not self._watch.sees_change(self._appliance, self._options.topics, list(start)):
                return start
        end = self._end_of_batch(start, limit)
        self._idle_at = start if end == start else None
        return end

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[RangePartition]:
        for read in (start, end):  # `end` may be of a batch that was planned before
            self._check_entries(read)
        topics = self._topics()
        ranges = [
            self._range(topic, start.get(topic), at, topics.get(topic)) for topic, at in end.items()
        ]
        planned = [found for found in ranges if found is not None]
        options = self._options
        return partitions_of(split(planned, options.min_partitions, options.records_per_task))

    def commit(self, end: StreamOffset) -> None:
        """Spark says this one batch late, and never of the last one: see `latestOffset`."""
        self._publish(end)

    def stop(self) -> None:
        if self._made is not None:
            self._made[1].close()
            self._made = None

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802 - Spark's
        """For the progress of the query, whose lag is the distance to it."""
        return self._seen

    # --- the tasks ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(read_options(self._given), partition, self._schema)

    # --- below ---

    @property
    def _options(self) -> ReadOptions:
        return self._connected()[0]

    @property
    def _appliance(self) -> Appliance:
        return self._connected()[1]

    @property
    def _group(self) -> str:
        group = self._options.group
        assert group is not None
        return group

    def _connected(self) -> tuple[ReadOptions, Appliance]:
        if self._made is None:
            options = read_options(self._given, "stream")
            if options.group is None:
                raise BadOptionError("a stream needs the option group: it pins the first start")
            self._made = options, Appliance(options.url, options.token_file)
        return self._made

    def _topics(self) -> dict[str, TopicLog]:
        return find_topics(self._appliance, self._options.topics)

    def _check_entries(self, read: StreamOffset) -> None:
        """Raises TopicChangedError if the journal lacks the last of them, to which all others
        lead."""
        entries = {topic: at["last_entry"] for topic, at in read.items() if "last_entry" in at}
        if entries:
            topic = max(entries, key=lambda name: int(entries[name].partition("-")[0]))
            check_entry(self._appliance, topic, entries[topic])

    def _end_of_batch(self, start: StreamOffset, limit: ReadLimit | None) -> StreamOffset:
        topics = self._topics()
        self._seen = _ends(topics)
        if not isinstance(limit, ReadAllAvailable) and self._is_early(start, topics):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        skips = not self._options.fail_on_data_loss
        end = next_end(start, topics, self._target, most, skips_lost=skips)
        if end != start:
            self._batch_s = time.monotonic()
        return end

    def _is_early(self, start: StreamOffset, topics: Mapping[str, TopicLog]) -> bool:
        """Too few records wait, and not too long. A run that ends with what is there waits for
        no more, nor does a stream that was started just now."""
        options = self._options
        return (
            self._target is None
            and time.monotonic() < self._batch_s + options.max_trigger_delay_s
            and sum(backlogs(start, _ends(topics)).values()) < options.min_records_per_trigger
        )

    def _pinned(self) -> StreamOffset:
        """The group's offsets; those that it lacks are committed first, if nobody else does."""
        topics = self._topics()
        committed = committed_offsets(self._appliance, self._group)
        missing = {}
        for topic, log in topics.items():
            if topic in committed:
                self._check_group(committed[topic], log)
            else:
                start = start_of(self._appliance, log, self._options, None)
                missing[topic] = CommittedOffset(log.topic_id, start)
        if missing:
            expected = dict.fromkeys(missing)
            try:
                commit(self._appliance, self._group, missing, expected=expected)
            except ApplianceError as error:
                if error.code != "offset_conflict":
                    raise
                # Another attempt of ours, or another stream of this group, was quicker.
            committed = committed_offsets(self._appliance, self._group)
        return {topic: asdict(committed[topic]) for topic in topics}

    def _check_group(self, at: CommittedOffset, log: TopicLog) -> None:
        if at.topic_id != log.topic_id:
            raise TopicChangedError(
                f"topic {log.topic!r} was created again since the group read it"
            )
        wanted = self._options.starting.of(log.topic)
        if wanted.isdigit() and int(wanted) != at.offset:
            raise BadOptionError(
                f"startingOffsets says {wanted} for topic {log.topic!r}, and group "
                f"{self._group!r} stands at {at.offset}. A stream begins where its group stands: "
                "reset the group, or name another one."
            )
        if self._options.has_starting and wanted not in {"committed", str(at.offset)}:
            say(
                f"startingOffsets={wanted} has no effect on topic {log.topic!r}: group "
                f"{self._group!r} stands at {at.offset}, and the stream begins there"
            )

    def _publish(self, done: StreamOffset) -> None:
        """Commit the stream's offsets for the group. A failure goes to the driver's stderr, and the
        next batch commits again: the group is only a copy of the checkpoint. After a restore as of
        an earlier time the group is what a new checkpoint begins with, and so is not moved."""
        if self._published == done:
            return
        offsets = {
            topic: CommittedOffset(at["topic_id"], at["offset"]) for topic, at in done.items()
        }
        if not offsets:
            return
        try:
            self._check_entries(done)
            commit(self._appliance, self._group, offsets)
        except ApplianceError as error:
            say(f"group {self._group} was not moved: {error}")
            return
        self._published = done

    def _range(self, topic: str, start: Any, end: Any, log: TopicLog | None) -> TopicRange | None:
        first = end["offset"] if start is None else start["offset"]
        if first == end["offset"]:
            return None
        if log is None or log.topic_id != end["topic_id"] or start["topic_id"] != end["topic_id"]:
            raise TopicChangedError(
                f"topic {topic!r} was deleted (and perhaps created again) since the checkpoint"
            )
        if first > end["offset"]:
            raise TopicChangedError(
                f"the stream begins at offset {first} of topic {topic!r}, behind the end "
                f"{end['offset']} of the batch that its checkpoint holds: the group was moved "
                "before the first batch was through"
            )
        lossy = not self._options.fail_on_data_loss
        begin = checked_start(log, first, fail_on_data_loss=not lossy)
        return TopicRange(topic, log.topic_id, min(begin, end["offset"]), end["offset"])


class Watch:
    """Waits at the appliance for a record of any topic, in place of asking for log ends."""

    def __init__(self) -> None:
        self._cursor: str | None = None
        self._listed_s = time.monotonic()

    def sees_change(
        self, appliance: Appliance, wanted: Sequence[str], known: Sequence[str]
    ) -> bool:
        """Whether the log ends are to be asked for again: at once for a new record, and sometimes
        for a topic that was deleted. Otherwise False after WAIT_S. `wanted`: names
        and patterns; `known`: names of topics."""
        is_plain = not any(one.startswith("/") for one in wanted)
        asked: dict[str, str | int] = {"format": "json", "max_records": 1}
        asked["topics"] = ",".join(wanted if is_plain else known)
        try:
            if self._cursor is None:
                # What came before this position is found in the log ends that are asked for next.
                page = appliance.get(_MANY, **asked, offset="latest").json(Page)
                self._cursor = page["cursor"]
                return True
            asked |= {"cursor": self._cursor, "wait": f"{WAIT_S}s"}
            page = appliance.get(_MANY, **asked).json(Page)
        except ApplianceError:  # too many topics for one question, or a cursor that has expired
            self._cursor = None
            time.sleep(WAIT_S)
            return True
        self._cursor = None if page["records"] else page["cursor"]
        is_old = time.monotonic() > self._listed_s + LISTED_S
        if is_old:
            self._listed_s = time.monotonic()
        return is_old or self._cursor is None


def next_end(
    start: StreamOffset,
    topics: Mapping[str, TopicLog],
    target: StreamOffset | None,
    most: int | None,
    *,
    skips_lost: bool = False,
) -> StreamOffset:
    """Where a batch ends that begins at `start` and takes at most about `most` records. With
    `skips_lost`, those that are gone do not count: batches without a record would be in vain.
    Raises TopicChangedError."""
    ends = target or _ends(topics)
    begin = _behind_lost(start, topics, ends) if skips_lost else start
    waiting = backlogs(begin, ends)
    shares = waiting if most is None else share(waiting, most)
    end: StreamOffset = {}
    for topic, at in start.items():
        log = topics.get(topic)
        if log is None or log.topic_id != at["topic_id"]:
            raise TopicChangedError(
                f"topic {topic!r} was deleted (and perhaps created again) since the checkpoint"
            )
        checked_start(log, at["offset"], fail_on_data_loss=False)  # else it waits, and then skips
        offset = begin[topic]["offset"] + shares.get(topic, 0)
        end[topic] = at if offset == at["offset"] else _read_to(log, offset)
    for topic, log in topics.items():
        if topic not in start:  # new: this batch notes where it begins, the next one reads
            end[topic] = {"topic_id": log.topic_id, "offset": log.log_start_offset}
    return end


def _read_to(log: TopicLog, offset: int) -> dict[str, Any]:
    told = {} if log.last_entry is None else {"last_entry": log.last_entry}
    return {"topic_id": log.topic_id, "offset": offset, **told}


def _behind_lost(
    start: StreamOffset, topics: Mapping[str, TopicLog], ends: StreamOffset
) -> StreamOffset:
    """`start`, or the log start, but not behind the end."""

    def of(topic: str, offset: int) -> int:
        if topic not in topics or topic not in ends:
            return offset
        end: int = ends[topic]["offset"]
        return max(offset, min(topics[topic].log_start_offset, end))

    return {topic: {**at, "offset": of(topic, at["offset"])} for topic, at in start.items()}


def backlogs(start: StreamOffset, ends: StreamOffset) -> dict[str, int]:
    """How many offsets of each topic wait."""
    return {
        topic: max(0, ends[topic]["offset"] - at["offset"])
        for topic, at in start.items()
        if topic in ends and ends[topic]["topic_id"] == at["topic_id"]
    }


def _ends(topics: Mapping[str, TopicLog]) -> StreamOffset:
    return {
        topic: {"topic_id": log.topic_id, "offset": log.log_end_offset}
        for topic, log in topics.items()
    }

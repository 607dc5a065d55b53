"""Streaming: Spark's checkpoint is the truth, the group a published copy that also pins the start.

The offset of a stream, as its checkpoint has it: `{"orders": {"topic_id": 3, "offset": 1044}}`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_seb.client import Appliance
from pyspark_seb.errors import (
    ApplianceError,
    BadOptionError,
    TopicChangedError,
)
from pyspark_seb.offsets import (
    CommittedOffset,
    TopicLog,
    TopicRange,
    checked_start,
    commit,
    committed_offsets,
    find_topics,
    start_of,
)
from pyspark_seb.options import ReadOptions, read_options
from pyspark_seb.planning import share, split
from pyspark_seb.reading import RangePartition, partitions_of, read_partition

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
        most = self._options.max_records_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

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
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_end(start, self._topics(), self._target, most)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[RangePartition]:
        topics = self._topics()
        ranges = [
            self._range(topic, start.get(topic), at, topics.get(topic)) for topic, at in end.items()
        ]
        planned = [found for found in ranges if found is not None]
        return partitions_of(split(planned, self._options.min_partitions))

    def commit(self, end: StreamOffset) -> None:
        """Spark says this one batch late, and never of the last one: see `latestOffset`."""
        self._publish(end)

    def stop(self) -> None:
        if self._made is not None:
            self._made[1].close()
            self._made = None

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
            options = read_options(self._given)
            if options.group is None:
                raise BadOptionError("a stream needs the option group: it pins the first start")
            self._made = options, Appliance(options.url, options.token_file)
        return self._made

    def _topics(self) -> dict[str, TopicLog]:
        return find_topics(self._appliance, self._options.topics)

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
        return {
            topic: {"topic_id": committed[topic].topic_id, "offset": committed[topic].offset}
            for topic in topics
        }

    def _check_group(self, at: CommittedOffset, log: TopicLog) -> None:
        if at.topic_id != log.topic_id:
            raise TopicChangedError(f"topic {log.topic!r} was made anew since the group read it")
        wanted = self._options.starting.of(log.topic)
        if wanted.isdigit() and int(wanted) != at.offset:
            raise BadOptionError(
                f"startingOffsets says {wanted} for topic {log.topic!r}, and group "
                f"{self._group!r} stands at {at.offset}. A stream begins where its group stands: "
                "reset the group, or name another one."
            )

    def _publish(self, done: StreamOffset) -> None:
        """Tell the group how far the stream is. A failure is told on the driver's stderr and made
        good by the next batch: the checkpoint is the truth, and a query need not end for a copy."""
        if self._published == done:
            return
        offsets = {
            topic: CommittedOffset(at["topic_id"], at["offset"]) for topic, at in done.items()
        }
        if not offsets:
            return
        try:
            commit(self._appliance, self._group, offsets)
        except ApplianceError as error:
            print(f"seb: group {self._group} was not moved: {error}", file=sys.stderr)  # noqa: T201
            return
        self._published = done

    def _range(self, topic: str, start: Any, end: Any, log: TopicLog | None) -> TopicRange | None:
        first = end["offset"] if start is None else start["offset"]
        if first == end["offset"]:
            return None
        if log is None or log.topic_id != end["topic_id"] or start["topic_id"] != end["topic_id"]:
            raise TopicChangedError(
                f"topic {topic!r} was deleted (and perhaps made anew) since the checkpoint"
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


def next_end(
    start: StreamOffset,
    topics: Mapping[str, TopicLog],
    target: StreamOffset | None,
    most: int | None,
) -> StreamOffset:
    """Where a batch ends that begins at `start` and takes at most about `most` records. Raises
    TopicChangedError."""
    ends = target or _ends(topics)
    backlogs = {
        topic: max(0, ends[topic]["offset"] - at["offset"])
        for topic, at in start.items()
        if topic in ends and ends[topic]["topic_id"] == at["topic_id"]
    }
    shares = backlogs if most is None else share(backlogs, most)
    end: StreamOffset = {}
    for topic, at in start.items():
        log = topics.get(topic)
        if log is None or log.topic_id != at["topic_id"]:
            raise TopicChangedError(
                f"topic {topic!r} was deleted (and perhaps made anew) since the checkpoint"
            )
        end[topic] = {**at, "offset": at["offset"] + shares.get(topic, 0)}
    for topic, log in topics.items():
        if topic not in start:  # new: this batch notes where it begins, the next one reads
            end[topic] = {"topic_id": log.topic_id, "offset": log.log_start_offset}
    return end


def _ends(topics: Mapping[str, TopicLog]) -> StreamOffset:
    return {
        topic: {"topic_id": log.topic_id, "offset": log.log_end_offset}
        for topic, log in topics.items()
    }

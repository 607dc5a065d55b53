"""What a DataFrame has read, to be committed by one's own code; and a narrower one of it.

The DataFrame carries it: the metadata of a column of its schema names topics and offsets, as they
were when it was loaded. Files that Spark writes of it have that, too: it names no host and no path.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from pyspark_seb import declared
from pyspark_seb import options as asked
from pyspark_seb.client import Appliance
from pyspark_seb.errors import BadOptionError, TopicChangedError
from pyspark_seb.options import CommittedOffset, TopicRange

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

METADATA: Final = "seb"


@dataclass(frozen=True, slots=True)
class Loaded:
    """`group`: the one at whose offsets the DataFrame begins, if it does. `committed`: these, by
    topic, if there were some. `ranges`: what the DataFrame reads."""

    group: str | None
    committed: Mapping[str, int]
    ranges: list[TopicRange]


def described(schema: StructType, loaded: Loaded) -> StructType:
    """The schema with what was loaded: at the column `offset`, if there is one."""
    at = schema.names.index("offset") if "offset" in schema.names else 0
    fields = list(schema.fields)
    one, text = fields[at], json.dumps(asdict(loaded))
    fields[at] = StructField(one.name, one.dataType, one.nullable, {METADATA: text})
    return StructType(fields)


def offsets_of(frame: DataFrame) -> dict[str, TopicRange]:
    """What a DataFrame of `format("seb")` reads, by topic: offsets start ≤ o < end. It may be one
    that was made of it, as long as it has the column `offset`. Raises BadOptionError."""
    return {found.topic: found for found in _loaded(frame).ranges}


def check_topics(frame: DataFrame, topic_ids: Mapping[str, int]) -> None:
    """A DataFrame finds its topics by their names. Raises TopicChangedError if one of them is
    another one than what was looked at before."""
    for topic, one in offsets_of(frame).items():
        if one.topic_id != topic_ids[topic]:
            raise TopicChangedError(f"topic {topic!r} was deleted and created again")


def commit(done: DataFrame | StreamingQuery, group: str, options: Mapping[str, str]) -> None:
    """Commit where a DataFrame ends, or the last batch of a query that has ended: all topics, or
    none. If the DataFrame begins where this group stood, and the group was moved since, that is
    refused. `options`: for `format("seb")`; url and tokenFile are used. Raises ApplianceError
    (`offset_conflict`), BadOptionError."""
    more: dict[str, Any] = {}
    if isinstance(done, DataFrame):
        if done.isStreaming:
            raise BadOptionError("a stream is committed by its query, once that has ended")
        loaded = _loaded(done)
        ends = {one.topic: CommittedOffset(one.topic_id, one.end) for one in loaded.ranges}
        if group == loaded.group:
            more["expected"] = {topic: loaded.committed.get(topic) for topic in ends}
    else:
        ends = _ends_of(done)
    if ends:
        with closing(_appliance(options)) as appliance:
            asked.commit(appliance, group, ends, **more)


def batch_offsets(
    frame: DataFrame, batch_id: int, checkpoint: str, options: Mapping[str, str]
) -> dict[str, TopicRange]:
    """In a function for `foreachBatch`: what the batch reads, by topic. `checkpoint`: the query's
    checkpointLocation; its only source is `format("seb")`. `options`: of the source. Raises
    ApplianceError, BadOptionError."""
    spark = frame.sparkSession
    ends = _planned(spark, checkpoint, batch_id)
    if batch_id:
        starts = _planned(spark, checkpoint, batch_id - 1)
    else:  # the group pins the first start, and moves when the batch is complete
        group = asked.read_options(options).group
        assert group is not None
        with closing(_appliance(options)) as appliance:
            starts = asked.committed_offsets(appliance, group)
    return {
        topic: TopicRange(topic, at.topic_id, starts.get(topic, at).offset, at.offset)
        for topic, at in ends.items()
    }


def narrowed(
    frame: DataFrame,
    options: Mapping[str, str],
    *,
    topics: Iterable[str] | None = None,
    from_offset: int = 0,
    until_offset: int | None = None,
    since: str | None = None,
    record_keys: Iterable[bytes] | None = None,
) -> DataFrame:
    """The rows of a loaded DataFrame with these topics, offsets from ≤ o < until, timestamps from
    `since` on (`2026-11-21T10:00:00Z`) and record keys. What cannot be among them is not read, or
    not given to Spark. `options`: with which the DataFrame was loaded. Raises BadOptionError,
    TopicChangedError, and what a load raises.

    A filter of Spark does not do this: for a source in Python, Spark 4.3 gives what one filter left
    out to all other uses of the same DataFrame, which would lose rows."""
    loaded = _loaded(frame)
    names = None if topics is None else set(topics)
    wanted = [one for one in loaded.ranges if names is None or one.topic in names]
    if not wanted:
        return frame.limit(0)
    starts, ends = {}, {}
    with closing(_appliance(options)) as appliance:
        for one in wanted:
            end = one.end if until_offset is None else min(one.end, until_offset)
            start = max(one.start, from_offset)
            if since is not None and start < end:
                start = max(start, asked.offset_since(appliance, one.topic, f"@{since}", end))
            ends[one.topic] = max(one.start, end)
            starts[one.topic] = min(start, ends[one.topic])
    narrow = {
        **declared.without(options, declared.TOPICS, declared.STARTING, declared.ENDING),
        "topics": ",".join(starts),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    if record_keys is not None:
        keys = [{"base64": base64.b64encode(key).decode()} for key in record_keys]
        narrow["recordKeys"] = json.dumps(keys)
    made = frame.sparkSession.read.format("seb").options(**narrow).load()
    check_topics(made, {one.topic: one.topic_id for one in wanted})
    if since is None:
        return made
    from pyspark.sql import functions as sql  # each worker of Spark imports this file

    return made.where(sql.col("timestamp") >= sql.to_timestamp(sql.lit(since)))


def _loaded(frame: DataFrame) -> Loaded:
    for one in frame.schema.fields:
        text = (one.metadata or {}).get(METADATA)
        if text is not None:
            found = json.loads(text)
            ranges = [TopicRange(**each) for each in found["ranges"]]
            return Loaded(found["group"], found["committed"], ranges)
    raise BadOptionError(
        'this DataFrame does not tell its offsets: take the one that format("seb") gave, or keep '
        "its column offset"
    )


def _appliance(options: Mapping[str, str]) -> Appliance:
    return Appliance(*declared.connection(options))


def _planned(spark: SparkSession, checkpoint: str, batch_id: int) -> dict[str, CommittedOffset]:
    """Where a batch ends, as the checkpoint has it: a version, a line on the batch, and a line for
    each source. Spark reads it, wherever it is."""
    row = spark.read.text(f"{checkpoint}/offsets/{batch_id}", wholetext=True).first()
    assert row is not None
    return _ends_in(row[0].split("\n")[2:])


def _ends_of(query: StreamingQuery) -> dict[str, CommittedOffset]:
    progress = query.lastProgress
    if progress is None:  # no batch was needed
        return {}
    return _ends_in([source["endOffset"] for source in progress["sources"]])


def _ends_in(offsets: Sequence[str]) -> dict[str, CommittedOffset]:
    """Of a query with one source. Raises BadOptionError."""
    if len(offsets) != 1:
        raise BadOptionError(f"the query has {len(offsets)} sources, and offsets of one are read")
    found = json.loads(offsets[0])
    return {topic: CommittedOffset(at["topic_id"], at["offset"]) for topic, at in found.items()}

"""Compaction of one topic on the cluster: stored records in, whole segments out.

Nothing changes until the segments are handed over, once every task has stored its own. The
appliance checks every record, refuses wrong jobs, and removes segments that were not handed over.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_seb.answers import Compacted, Upload
from pyspark_seb.arrow.columns import STORED_SCHEMA
from pyspark_seb.arrow.rows import SegmentPlace, segment_of
from pyspark_seb.client import Appliance, Connection
from pyspark_seb.errors import ApplianceError
from pyspark_seb.jobs.frame import Run
from pyspark_seb.jobs.steps.meanwhile import meanwhile
from pyspark_seb.options import ReadOptions, TopicRange, read_options, split
from pyspark_seb.reading.ranges import RangePartition, partitions_of, read_partition
from seb_appliance import limits

PAUSE_S: Final = 1.0
UPLOAD_ATTEMPTS: Final = 5
STRIPES: Final = 10_000  # parts of the offsets whose sizes are counted
NAMES: Final = "segment int, name string"
HEARTBEAT_S: Final = 60.0
POLL_S: Final = 0.5
_OF_A_RECORD_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Compaction:
    """What the appliance wants compacted; see `CompactionOut` in its API."""

    compaction: str
    topic: str
    topic_id: int
    bucket_id: str
    base_offset: int
    last_offset: int
    log_start_offset: int
    tombstones_until_us: int | None
    tombstones_below: int
    segment_bytes: int
    dirty_bytes: int

    @property
    def path(self) -> str:
        return f"/v1/topics/{self.topic}/compactions/{self.compaction}"

    @property
    def text(self) -> str:
        """As an option."""
        return json.dumps(asdict(self))

    @property
    def readable(self) -> TopicRange:
        start = max(self.base_offset, self.log_start_offset)
        return TopicRange(self.topic, self.topic_id, start, self.last_offset + 1)


@dataclass(frozen=True, slots=True)
class Access:
    """How a task reaches the appliance."""

    url: str
    token_file: str

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url, "tokenFile": self.token_file}

    def open(self) -> Appliance:
        return Appliance(self.url, self.token_file)


class CompactionSource(DataSource):
    """Options: `url`, `tokenFile`, `minPartitions`, `compaction` (its text)."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        return "seb_compaction"

    def schema(self) -> StructType:
        return STORED_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        given = {name: self.options[name] for name in ("url", "tokenFile", "minPartitions")}
        options = read_options({**given, "topics": self._wanted.topic, "transport": "direct"})
        return CompactionReader(options, schema, self._wanted)

    @property
    def _wanted(self) -> Compaction:
        return Compaction(**json.loads(self.options["compaction"]))


class CompactionReader(DataSourceReader):
    """All records of the range, as they are stored."""

    def __init__(self, options: ReadOptions, schema: StructType, wanted: Compaction) -> None:
        self._options = options
        self._schema = schema
        self._wanted = wanted

    def partitions(self) -> list[RangePartition]:
        return partitions_of(split([self._wanted.readable], self._options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._schema)


def store(
    access: Access, wanted: Compaction, bases: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of STORED_SCHEMA and the number of their `segment` become segments, and rows of NAMES. A
    task has whole segments, in the order of their offsets; one that is tried again stores them
    under other names. Raises ApplianceError."""
    ends = [*bases[1:], wanted.last_offset + 1]  # each answers for the offsets up to the next one's
    with closing(access.open()) as appliance:
        for number, records in _segments(batches):
            bucket_id = bytes.fromhex(wanted.bucket_id)
            place = SegmentPlace(wanted.topic_id, bucket_id, bases[number], ends[number] - 1)
            name = upload(appliance, wanted, place, segment_of(place, records))
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), pa.array([name])], ["segment", "name"]
            )


def _segments(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The number and the records of each segment, of which the rows are in one stretch."""
    waiting: list[pa.RecordBatch] = []
    for part in _parts(batches):
        if waiting and _number(part) != _number(waiting[0]):
            yield _number(waiting[0]), _joined(waiting)
            waiting = []
        waiting.append(part)
    if waiting:
        yield _number(waiting[0]), _joined(waiting)


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """With rows of one segment each."""
    for batch in batches:
        begin = 0
        if batch.num_rows:
            for end in pc.run_end_encode(batch.column("segment")).run_ends.to_pylist():
                yield batch.slice(begin, end - begin)
                begin = end


def _number(part: pa.RecordBatch) -> int:
    return int(part.column("segment")[0].as_py())


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(parts).select(STORED_SCHEMA.names)


def upload(appliance: Appliance, wanted: Compaction, place: SegmentPlace, body: bytes) -> str:
    """The name under which it is stored. Raises ApplianceError."""
    asked = {
        "base_offset": place.base_offset,
        "last_offset": place.last_offset,
        "size_bytes": len(body),
        "md5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode(),
    }
    why = ""
    for attempt in range(UPLOAD_ATTEMPTS):
        time.sleep(PAUSE_S * attempt)
        given: Upload = appliance.send("POST", f"{wanted.path}/segments", asked).json(Upload)
        parts = urlsplit(given["url"])
        bucket = Connection(f"{parts.scheme}://{parts.netloc}")
        with closing(bucket):
            try:
                answer = bucket.exchange(
                    "PUT", f"{parts.path}?{parts.query}", body, given["headers"]
                )
            except (OSError, HTTPException) as error:
                why = f"no answer from {parts.netloc} ({error!r})"
                continue
        if answer.status == 200:
            return given["segment"]
        why = f"{parts.netloc} answers {answer.status}"
    raise ApplianceError("PUT of a segment", 0, "unreachable", why, {})


@dataclass(frozen=True, slots=True)
class Outcome:
    """`state`: `in_force`, `refused`, or the last one seen within the time; `reason`: why."""

    state: str
    reason: str


def begin(appliance: Appliance, topic: str) -> Compaction:
    """Raises ApplianceError."""
    found: Compaction = appliance.send("POST", f"/v1/topics/{topic}/compactions", {}).json(
        Compaction
    )
    return found


def compact(run: Run, access: Access, wanted: Compaction) -> list[str]:
    """Store segments that hold what stays: their names, in the order of offsets. Raises what Spark
    makes of ApplianceError and the like."""
    spark, tasks = run.spark, run.asked.tasks
    spark.dataSource.register(CompactionSource)
    options = {**access.options, "compaction": wanted.text, "minPartitions": str(tasks)}
    records = spark.read.format(CompactionSource.name()).options(**options).load()
    newest = _newest(records).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        kept = _without_old_tombstones(newest, wanted)
        stripe = f"(offset - {wanted.base_offset}) div {_stripe(wanted)}"
        kept = kept.withColumn("stripe", sql.expr(stripe))
        run.step(f"reading the offsets up to {wanted.last_offset}")
        sizes = {row.stripe: row.size for row in kept.groupBy("stripe").agg(_size()).collect()}
        segments = segments_of(sizes, wanted.segment_bytes)
        rows = [(number, i) for i, stripes in enumerate(segments) for number in stripes]
        numbers = sql.broadcast(spark.createDataFrame(rows, "stripe long, segment int"))
        numbered = kept.join(numbers, "stripe").drop("stripe")
        grouped = numbered.repartition(len(segments), "segment").sortWithinPartitions("offset")
        run.step(f"storing {len(segments)} segments")
        storing = partial(store, access, wanted, bases_of(segments, wanted))
        stored = grouped.mapInArrow(storing, NAMES).collect()
        return [row.name for row in sorted(stored)]
    finally:
        newest.unpersist()


def hand_over(appliance: Appliance, wanted: Compaction, names: Sequence[str]) -> None:
    """Have the appliance check the segments, and activate them. Raises ApplianceError."""
    body = {"compaction": wanted.compaction, "segments": names}
    appliance.send("POST", f"/v1/topics/{wanted.topic}/segments", body)


def outcome(appliance: Appliance, wanted: Compaction, wait_s: float) -> Outcome:
    """When it is in force or refused, or still being checked after `wait_s`. Raises
    ApplianceError."""
    give_up_s = time.monotonic() + wait_s
    while True:
        found: Compacted = appliance.get(wanted.path).json(Compacted)
        if found["state"] != "checking" or time.monotonic() > give_up_s:
            return Outcome(found["state"], found["reason"])
        time.sleep(POLL_S)


def kept_alive(access: Access, wanted: Compaction) -> AbstractContextManager[None]:
    """Ask the appliance for the compaction regularly, so that it does not expire."""

    def ask() -> None:
        with closing(access.open()) as appliance, suppress(ApplianceError):
            appliance.get(wanted.path)  # the next request of the job itself shows what is wrong

    return meanwhile("compaction", HEARTBEAT_S, ask)


def _newest(records: DataFrame) -> DataFrame:
    """The newest record of each record key, and what has none."""
    names = [name for name in STORED_SCHEMA.names if name != "key"]
    newest = (
        records.where(sql.col("key").isNotNull())
        .groupBy("key")
        .agg(sql.max_by(sql.struct(*names), "offset").alias("newest"))
        .select("key", "newest.*")
    )
    return newest.unionByName(records.where(sql.col("key").isNull())).select(*STORED_SCHEMA.names)


def _without_old_tombstones(newest: DataFrame, wanted: Compaction) -> DataFrame:
    """The last record of all stays in any case, so that there is one."""
    if wanted.tombstones_until_us is None:
        return newest
    last_offset = newest.agg(sql.max("offset")).collect()[0][0]
    is_over = (
        sql.col("value").isNull()
        & sql.col("key").isNotNull()
        & (sql.col("created") <= wanted.tombstones_until_us)
        & (sql.col("offset") < wanted.tombstones_below)
        & (sql.col("offset") != last_offset)
    )
    return newest.where(~is_over)


def _size() -> Column:
    parts = [
        sql.coalesce(sql.octet_length(name), sql.lit(0)) for name in ("key", "value", "packed")
    ]
    return sql.sum(sum(parts, sql.lit(_OF_A_RECORD_BYTES))).alias("size")


def _stripe(wanted: Compaction) -> int:
    """Offsets in a stripe."""
    return -(-(wanted.last_offset + 1 - wanted.base_offset) // STRIPES)


def segments_of(sizes: Mapping[int, int], segment_bytes: int) -> list[list[int]]:
    """Neighbouring stripes that make a segment of about so many bytes; larger ones where there
    would be too many. `sizes`: bytes by stripe, of those that have records."""
    most = max(segment_bytes, 2 * sum(sizes.values()) // limits.HANDED_OVER_SEGMENTS_MAX)
    segments: list[list[int]] = []
    size_bytes = 0
    for stripe in sorted(sizes):
        if not segments or size_bytes + sizes[stripe] > most:
            segments.append([])
            size_bytes = 0
        segments[-1].append(stripe)
        size_bytes += sizes[stripe]
    return segments


def bases_of(segments: Sequence[Sequence[int]], wanted: Compaction) -> list[int]:
    """Each segment answers for the offsets from its first stripe up to the next one's."""
    step = _stripe(wanted)
    later = (wanted.base_offset + stripes[0] * step for stripes in segments[1:])
    return [wanted.base_offset, *later]

"""Compaction of one topic on the cluster: what is to stay, into which segments, and handing over.

Everything until the segments are handed over changes nothing: the appliance removes what nobody
handed over. It checks every record, so a job that is wrong is refused.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from pyspark_seb.client import Appliance, Connection
from pyspark_seb.columns import STORED_SCHEMA, arrow_schema
from pyspark_seb.errors import ApplianceError
from pyspark_seb.new_segments import SegmentPlace, segment_of
from pyspark_seb.offsets import TopicRange
from pyspark_seb.options import ReadOptions
from pyspark_seb.planning import split
from pyspark_seb.reading import read_range
from seb_appliance import limits

SEGMENTS_MAX: Final = limits.HANDED_OVER_SEGMENTS_MAX
STRIPES: Final = 10_000  # so finely it is counted where what stays lies
HEARTBEAT_S: Final = 60.0
POLL_S: Final = 0.5
PAUSE_S: Final = 1.0
UPLOAD_ATTEMPTS: Final = 5
_OF_A_RECORD_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Compaction:
    """What the appliance wants compacted; see `CompactionOut` in its API."""

    id: str
    topic: str
    topic_id: int
    bucket_id: bytes
    base_offset: int
    last_offset: int
    log_start_offset: int
    tombstones_until_us: int | None
    segment_bytes: int
    dirty_bytes: int

    @property
    def path(self) -> str:
        return f"/v1/topics/{self.topic}/compactions/{self.id}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`state`: `in_force`, `refused`, or what it was when nobody waited any longer; and why."""

    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Access:
    """How a task reaches the appliance."""

    url: str
    token_file: str

    def open(self) -> Appliance:
        return Appliance(self.url, self.token_file)


def begin(appliance: Appliance, topic: str) -> Compaction:
    """Raises ApplianceError."""
    found = appliance.send("POST", f"/v1/topics/{topic}/compactions", {}).json()
    return Compaction(
        found["compaction"],
        found["topic"],
        found["topic_id"],
        bytes.fromhex(found["bucket_id"]),
        found["base_offset"],
        found["last_offset"],
        found["log_start_offset"],
        found["tombstones_until_us"],
        found["segment_bytes"],
        found["dirty_bytes"],
    )


def compact(spark: SparkSession, options: ReadOptions, wanted: Compaction) -> list[str]:
    """Names of the segments that hold what stays, stored and in the order of their offsets. Raises
    what Spark makes of ApplianceError and the like in a task."""
    newest = _newest(_records(spark, options, wanted)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        kept = _without_old_tombstones(newest, wanted)
        stripe = f"(offset - {wanted.base_offset}) div {_stripe(wanted)}"
        kept = kept.withColumn("stripe", sql.expr(stripe))
        sizes = {row.stripe: row.size for row in kept.groupBy("stripe").agg(_size()).collect()}
        segments = segments_of(sizes, wanted.segment_bytes)
        places = _places(segments, wanted)
        access = Access(options.url, options.token_file)

        def store(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _store(batches, access, wanted, places)

        rows = [(number, i) for i, stripes in enumerate(segments) for number in stripes]
        numbers = sql.broadcast(spark.createDataFrame(rows, "stripe long, segment int"))
        numbered = kept.join(numbers, "stripe").drop("stripe")
        grouped = numbered.repartition(len(places), "segment").sortWithinPartitions("offset")
        made = grouped.mapInArrow(store, "segment int, name string").collect()
        names = {row.segment: row.name for row in made}
    finally:
        newest.unpersist()
    return [names[i] for i in range(len(places))]


def hand_over(
    appliance: Appliance, wanted: Compaction, names: Sequence[str], wait_s: float
) -> Outcome:
    """When it is in force or refused, or still being checked after `wait_s`. Raises
    ApplianceError."""
    body = {"compaction": wanted.id, "segments": list(names)}
    give_up_s = time.monotonic() + wait_s
    while True:
        found: dict[str, Any] = appliance.get(wanted.path).json()
        if found["state"] in {"in_force", "refused"} or time.monotonic() > give_up_s:
            return Outcome(found["state"], found["reason"])
        if found["state"] == "open":
            appliance.send("POST", f"/v1/topics/{wanted.topic}/segments", body)
        time.sleep(POLL_S)


@contextmanager
def kept_alive(access: Access, wanted: Compaction) -> Iterator[None]:
    """The appliance is asked for the compaction now and then, so that it does not forget it."""
    over = threading.Event()

    def ask() -> None:
        with closing(access.open()) as appliance:
            while not over.wait(HEARTBEAT_S):
                try:
                    appliance.get(wanted.path)
                except ApplianceError:
                    return  # the next that is asked for the job itself tells why

    thread = threading.Thread(target=ask, name="compaction", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _records(spark: SparkSession, options: ReadOptions, wanted: Compaction) -> DataFrame:
    """All records of the range, as they are stored."""
    start = max(wanted.base_offset, wanted.log_start_offset)
    whole = TopicRange(wanted.topic, wanted.topic_id, start, wanted.last_offset + 1)
    parts = split([whole], options.min_partitions)
    schema = arrow_schema(STORED_SCHEMA)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from read_range(options, parts[number], schema)

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, STORED_SCHEMA)


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
    most = max(segment_bytes, 2 * sum(sizes.values()) // SEGMENTS_MAX)
    segments: list[list[int]] = []
    size_bytes = 0
    for stripe in sorted(sizes):
        if not segments or size_bytes + sizes[stripe] > most:
            segments.append([])
            size_bytes = 0
        segments[-1].append(stripe)
        size_bytes += sizes[stripe]
    return segments


def _places(segments: Sequence[Sequence[int]], wanted: Compaction) -> list[SegmentPlace]:
    """Each segment answers for the offsets up to the next one's first stripe."""
    step = _stripe(wanted)
    bases = [wanted.base_offset + stripes[0] * step for stripes in segments]
    bases[0] = wanted.base_offset
    ends = [*bases[1:], wanted.last_offset + 1]
    return [
        SegmentPlace(wanted.topic_id, wanted.bucket_id, base, end - 1)
        for base, end in zip(bases, ends, strict=True)
    ]


# --- in a task ---


def _store(
    batches: Iterator[pa.RecordBatch],
    access: Access,
    wanted: Compaction,
    places: Sequence[SegmentPlace],
) -> Iterator[pa.RecordBatch]:
    """Stores each segment that the rows belong to, of which there are all; its number and name."""
    waiting: list[pa.RecordBatch] = []
    with closing(access.open()) as appliance:
        for part in _by_segment(batches):
            if waiting and _segment(part) != _segment(waiting[0]):
                yield _stored(waiting, appliance, wanted, places)
                waiting = []
            waiting.append(part)
        if waiting:
            yield _stored(waiting, appliance, wanted, places)


def _by_segment(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parts with rows of one segment each: rows come in the order of their offsets."""
    for batch in batches:
        begin = 0
        for run in pc.run_end_encode(batch.column("segment")).run_ends.to_pylist():
            yield batch.slice(begin, run - begin)
            begin = run


def _segment(part: pa.RecordBatch) -> int:
    return int(part.column("segment")[0].as_py())


def _stored(
    parts: list[pa.RecordBatch],
    appliance: Appliance,
    wanted: Compaction,
    places: Sequence[SegmentPlace],
) -> pa.RecordBatch:
    number = _segment(parts[0])
    records = pa.concat_batches(parts).select(STORED_SCHEMA.names)
    name = upload(appliance, wanted, places[number], segment_of(places[number], records))
    return pa.record_batch({"segment": pa.array([number], pa.int32()), "name": pa.array([name])})


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
        given = appliance.send("POST", f"{wanted.path}/segments", asked).json()
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
            return str(given["segment"])
        why = f"{parts.netloc} answers {answer.status}"
    raise ApplianceError("PUT of a segment", 0, "unreachable", why, {})

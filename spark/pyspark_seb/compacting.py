"""Compaction of one topic on the cluster: what is to stay, and into which segments it goes.

Everything until the segments are handed over changes nothing: the appliance removes what nobody
handed over. It checks every record, so a job that is wrong is refused.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from pyspark_seb.client import Appliance
from pyspark_seb.columns import STORED_SCHEMA
from pyspark_seb.compaction_source import Access, Compaction, CompactionSource
from pyspark_seb.errors import ApplianceError
from seb_appliance import limits

STRIPES: Final = 10_000  # so finely it is counted where what stays lies
HEARTBEAT_S: Final = 60.0
POLL_S: Final = 0.5
_OF_A_RECORD_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Outcome:
    """`state`: `in_force`, `refused`, or what it was when nobody waited any longer; and why."""

    state: str
    reason: str


def begin(appliance: Appliance, topic: str) -> Compaction:
    """Raises ApplianceError."""
    found = appliance.send("POST", f"/v1/topics/{topic}/compactions", {}).json()
    return Compaction(**{name: found[name] for name in Compaction.__dataclass_fields__})


def compact(spark: SparkSession, access: Access, wanted: Compaction, tasks: int) -> None:
    """Store segments that hold what stays, and hand them over. `tasks`: at least so many read.
    Raises what Spark makes of ApplianceError and the like."""
    spark.dataSource.register(CompactionSource)
    options = {**access.options, "compaction": wanted.text, "minPartitions": str(tasks)}
    records = spark.read.format(CompactionSource.name()).options(**options).load()
    newest = _newest(records).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        kept = _without_old_tombstones(newest, wanted)
        stripe = f"(offset - {wanted.base_offset}) div {_stripe(wanted)}"
        kept = kept.withColumn("stripe", sql.expr(stripe))
        sizes = {row.stripe: row.size for row in kept.groupBy("stripe").agg(_size()).collect()}
        segments = segments_of(sizes, wanted.segment_bytes)
        rows = [(number, i) for i, stripes in enumerate(segments) for number in stripes]
        numbers = sql.broadcast(spark.createDataFrame(rows, "stripe long, segment int"))
        numbered = kept.join(numbers, "stripe").drop("stripe")
        grouped = numbered.repartition(len(segments), "segment").sortWithinPartitions("offset")
        writer = grouped.write.format(CompactionSource.name()).mode("append")
        bases = json.dumps(bases_of(segments, wanted))
        writer.options(**options, bases=bases).save()
    finally:
        newest.unpersist()


def outcome(appliance: Appliance, wanted: Compaction, wait_s: float) -> Outcome:
    """When it is in force or refused, or still being checked after `wait_s`. Raises
    ApplianceError."""
    give_up_s = time.monotonic() + wait_s
    while True:
        found = appliance.get(wanted.path).json()
        if found["state"] != "checking" or time.monotonic() > give_up_s:
            return Outcome(found["state"], found["reason"])
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

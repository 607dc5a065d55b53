"""A topic's lake table and the log after it, as one DataFrame that has each record once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_seb.answers import Table
from pyspark_seb.client import Appliance
from pyspark_seb.errors import LakeError, RecordsGoneError, TopicChangedError
from pyspark_seb.frames import check_topics
from pyspark_seb.options import TopicLog, find_topics, read_options
from seb_appliance.formats.lake.tables import Column, columns_shown
from seb_appliance.lake.rows import RowMaker

PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.2


class Pinned(NamedTuple):
    """A snapshot of a topic's table (None: it has none yet), which has every record below
    `next_offset`; the log is read from `begin` up to `end` (exclusive)."""

    snapshot: int | None
    location: str
    is_iceberg: bool
    next_offset: int
    columns: tuple[Column, ...]
    begin: int
    end: int
    topic_id: int


def table_and_log(
    spark: SparkSession, topic: str, options: Mapping[str, str], *, table: str | None = None
) -> DataFrame:
    """Each record of the topic up to now once, in the columns of its table: those of one snapshot
    of the table, and from there those of the log. Every action sees the same records; call this
    again for newer ones.

    `options`: for `format("seb")`, without topics and offsets. `table`: its name in a catalog of
    Spark (`seb.topics.orders_eu`); default: Spark opens the folder in the bucket, as Iceberg, or as
    Delta if the table is only that. Raises ApplianceError, BadOptionError, LakeError,
    RecordsGoneError, TopicChangedError."""
    wanted = {**options, "topics": topic}
    reading = read_options(wanted)
    with closing(Appliance(reading.url, reading.token_file)) as appliance:
        pinned = pin(appliance, topic)
    # First of all: snapshots go.
    rows = None if pinned.snapshot is None else _snapshot(spark, pinned, table)
    wanted |= {"startingOffsets": str(pinned.begin), "endingOffsets": str(pinned.end)}
    log = spark.read.format("seb").options(**wanted).load()
    check_topics(log, {topic: pinned.topic_id})
    columns = pinned.columns

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = RowMaker(columns)
        return (made.rows_of(one)[0] for one in batches if one.num_rows)

    tail = log.mapInArrow(convert, from_arrow_schema(RowMaker(columns).schema))
    return tail if rows is None else rows.unionByName(tail)


def pin(appliance: Appliance, topic: str) -> Pinned:
    """The newest snapshot that readers find, and the log after it. Raises ApplianceError, LakeError
    RecordsGoneError, TopicChangedError."""
    until_s = time.monotonic() + PATIENCE_S
    lost = 0
    while True:
        table: Table = appliance.get(f"/v1/tables/{topic}").json(Table)
        log = find_topics(appliance, [topic])[topic]
        if table["topic_id"] != log.topic_id:
            raise TopicChangedError(f"topic {topic!r} was deleted and created again")
        pinned = _pinned(table, log, lost)
        if pinned is not None and pinned.begin >= log.log_start_offset:
            return pinned
        if time.monotonic() > until_s:
            if pinned is None:
                raise LakeError(f"no metadata of the table of topic {topic!r} is in the bucket yet")
            raise RecordsGoneError(topic, pinned.begin, log.log_start_offset)
        lost = log.log_start_offset
        time.sleep(_PAUSE_S)


def _pinned(table: Mapping[str, Any], log: TopicLog, lost: int) -> Pinned | None:
    """`lost`: where the log began before the table was asked for. A trim by hand does not wait for
    the table: its gap is final once the table is known not to have the records. Retention may be
    ahead of what is printed."""
    nothing = {**table, "snapshot": None, "next_offset": 0}
    shown = table["published"] or nothing
    is_printed = shown["next_offset"] == table["next_offset"]
    if shown["snapshot"] is None and not is_printed:
        return None
    return Pinned(
        shown["snapshot"],
        table["location"],
        "iceberg" in table["formats"],
        shown["next_offset"],
        columns_shown(shown["columns"]),
        max(shown["next_offset"], lost) if is_printed else shown["next_offset"],
        log.log_end_offset,
        log.topic_id,
    )


def _snapshot(spark: SparkSession, pinned: Pinned, table: str | None) -> DataFrame:
    assert pinned.snapshot is not None
    if table is not None:
        spark.sql(f"REFRESH TABLE {table}")  # else Spark knows the snapshots of some time ago
        return spark.sql(f"SELECT * FROM {table} VERSION AS OF {pinned.snapshot}")  # noqa: S608
    kind, version = (
        ("iceberg", pinned.snapshot) if pinned.is_iceberg else ("delta", pinned.snapshot - 1)
    )
    return spark.read.format(kind).option("versionAsOf", version).load(pinned.location)

"""A topic's lake table and the log after it, as one DataFrame that has each record once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from pyspark_seb.client import Appliance
from pyspark_seb.errors import BadOptionError, LakeError
from pyspark_seb.options import read_options

NEXT_OFFSET: Final = "seb.next-offset"
COLUMNS: Final = ("offset", "timestamp", "key", "key_binary", "headers", "value", "value_binary")


@dataclass(frozen=True, slots=True)
class Pinned:
    """A snapshot of an Iceberg table: it has every record below `next_offset`."""

    snapshot: int
    next_offset: int


def pin(spark: SparkSession, table: str) -> Pinned:
    """The newest snapshot of `table`. Raises LakeError where it does not tell its offset."""
    # The list of snapshots of one load: the newest of them has its offset beside it.
    found = spark.sql(
        f"SELECT snapshot_id, summary['{NEXT_OFFSET}'] AS next_offset "  # noqa: S608
        f"FROM {table}.snapshots ORDER BY committed_at DESC, snapshot_id DESC LIMIT 1"
    ).first()
    if found is None or found.next_offset is None:
        raise LakeError(f"{table} has no snapshot with {NEXT_OFFSET}: is it a topic's table?")
    return Pinned(int(found.snapshot_id), int(found.next_offset))


def table_and_log(
    spark: SparkSession, table: str, topic: str, options: Mapping[str, str]
) -> DataFrame:
    """Every record of the topic up to now once: those of one snapshot of its Iceberg table, and
    from there those of the log. `table`: as Spark names it, `seb.topics.orders_eu`. `options`: for
    `format("seb")`, without topics and offsets. Only for a table without `table_columns`. Raises
    BadOptionError, LakeError, RecordsGoneError."""
    wanted = {**options, "topics": topic}
    begun = pin(spark, table)
    rows = spark.sql(f"SELECT * FROM {table} VERSION AS OF {begun.snapshot}")  # noqa: S608
    if set(rows.columns) != set(COLUMNS):
        raise BadOptionError(
            f"{table} has declared columns: only the appliance reads values as they say. "
            "Read the table alone, or the log with columns of your own."
        )
    end = _log_end(wanted, topic)
    if end <= begun.next_offset:
        return rows.select(*COLUMNS)
    wanted |= {"startingOffsets": str(begun.next_offset), "endingOffsets": str(end)}
    log = spark.read.format("seb").options(**wanted).load()
    return rows.select(*COLUMNS).unionByName(log.select(*as_table_columns()))


def as_table_columns() -> list[Any]:
    """Columns of `format("seb")` as those of a table: texts and bytes apart."""
    columns: dict[str, Any] = {}
    for name in ("key", "value"):
        is_text = sql.expr(f"is_valid_utf8(cast({name} AS string))")
        columns[name] = sql.when(is_text, sql.col(name).cast("string"))
        columns[f"{name}_binary"] = sql.when(~is_text, sql.col(name))
    return [columns.get(name, sql.col(name)).alias(name) for name in COLUMNS]


def _log_end(options: Mapping[str, str], topic: str) -> int:
    reading = read_options(options)
    with closing(Appliance(reading.url, reading.token_file)) as appliance:
        return int(appliance.get(f"/v1/topics/{topic}").json()["log_end_offset"])

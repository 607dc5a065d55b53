"""Somebody's own Iceberg table that jobs keep up with a topic: its snapshots tell how far it is.

A snapshot that a job commits has the properties `seb.topic-id` and `seb.next-offset`. A commit is
refused if the table has changed since the job looked at these, so that of two runs at once one
changes nothing.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from pyspark_seb import jobs
from pyspark_seb.client import Appliance
from pyspark_seb.errors import LakeError
from pyspark_seb.options import TopicLog, find_topics

TOPIC_ID: Final = "seb.topic-id"
NEXT_OFFSET: Final = "seb.next-offset"
BRANCH_DAYS: Final = 1  # of a run that died; expire_snapshots of the table's owner removes it


class Progress(NamedTuple):
    """A table at a snapshot. `next_offset`: of the topic; None if no run has written it yet."""

    snapshot: int
    next_offset: int | None


class Pull(NamedTuple):
    """What one run brings into the table: offsets begin ≤ o < end of the topic."""

    table: str
    log: TopicLog
    progress: Progress
    begin: int
    end: int

    @property
    def properties(self) -> dict[str, str]:
        return {
            f"snapshot-property.{TOPIC_ID}": str(self.log.topic_id),
            f"snapshot-property.{NEXT_OFFSET}": str(self.end),
        }


def arguments(doc: str | None) -> argparse.ArgumentParser:
    parser = jobs.parser(doc)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="in a catalog of Spark, as my.db.orders")
    parser.add_argument(
        "--select",
        nargs="+",
        default=[],
        metavar="SQL",
        help="other columns of the table, as expressions over those of a record: "
        "\"CAST(get_json_object(CAST(value AS STRING), '$.total') AS DOUBLE) AS total\"",
    )
    parser.add_argument("--max-records", type=int, help="in one run (default: all)")
    return parser


def begin(spark: SparkSession, asked: argparse.Namespace, at: int | None = None) -> Pull:
    """`at`: instead of where the last run ended. Raises ApplianceError, LakeError."""
    with closing(Appliance(asked.url, asked.token_file)) as appliance:
        log = find_topics(appliance, [asked.topic])[asked.topic]
    progress = progress_of(spark, asked.table, log.topic_id)
    if at is None:
        at = progress.next_offset
    at = log.log_start_offset if at is None else at
    if at > log.log_end_offset:
        raise LakeError(
            f"{asked.table} is at offset {at}, and the log of {asked.topic} ends at "
            f"{log.log_end_offset}"
        )
    end = log.log_end_offset
    if asked.max_records is not None:
        end = min(end, at + asked.max_records)
    return Pull(asked.table, log, progress, at, end)


def progress_of(spark: SparkSession, table: str, topic_id: int) -> Progress:
    """Of the newest snapshot; a table without one gets an empty one."""
    if (head := _head(spark, table)) is None:
        spark.table(table).limit(0).writeTo(table).append()
        head = _head(spark, table)
        assert head is not None
    rows = spark.sql(
        f"SELECT snapshot_id, parent_id, summary['{TOPIC_ID}'] AS topic_id, "  # noqa: S608
        f"summary['{NEXT_OFFSET}'] AS next_offset FROM {table}.snapshots"
    ).collect()
    snapshots = {row.snapshot_id: row for row in rows}
    found = snapshots.get(head)
    while found is not None:
        if found.topic_id == str(topic_id):
            return Progress(head, int(found.next_offset))
        found = snapshots.get(found.parent_id)
    return Progress(head, None)


def _head(spark: SparkSession, table: str) -> int | None:
    spark.sql(f"REFRESH TABLE {table}")
    found = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").first()  # noqa: S608
    return None if found is None else int(found.snapshot_id)


def records(spark: SparkSession, asked: argparse.Namespace, pull: Pull) -> DataFrame:
    """With the columns of --select, and `topic_id`."""
    options = {
        **jobs.writing(asked),
        "topics": pull.log.topic,
        "startingOffsets": str(pull.begin),
        "endingOffsets": str(pull.end),
        "failOnCompaction": "false",
    }
    found = spark.read.format("seb").options(**options).load()
    return found.withColumn("topic_id", sql.lit(pull.log.topic_id).cast("long"))


def shaped(spark: SparkSession, found: DataFrame, asked: argparse.Namespace) -> DataFrame:
    """As rows of the table: its columns by name, in its types. Raises LakeError for a column that
    the records do not have."""
    wide = found.selectExpr("*", *asked.select)
    fields = spark.table(asked.table).schema
    missing = [one.name for one in fields if one.name not in wide.columns]
    if missing:
        raise LakeError(f"{asked.table} has columns that no --select makes: {', '.join(missing)}")
    return wide.select(*(sql.col(one.name).cast(one.dataType) for one in fields))


def overwrite(spark: SparkSession, asked: argparse.Namespace, pull: Pull) -> None:
    """Replace the table's rows of the topic from `begin` on by the records. Refused by Iceberg if
    such rows were committed since the progress was read, by whomever."""
    rows = shaped(spark, records(spark, asked, pull), asked)
    writer = rows.writeTo(pull.table).options(
        **pull.properties,
        **{
            "isolation-level": "serializable",
            "validate-from-snapshot-id": str(pull.progress.snapshot),
        },
    )
    mine = sql.col("topic_id") == pull.log.topic_id
    writer.overwrite(mine & (sql.col("offset") >= pull.begin))


def merge_newest(spark: SparkSession, asked: argparse.Namespace, pull: Pull) -> None:
    """Bring the newest record of each record key into the table, on a branch of the snapshot whose
    progress was read; the table is then moved there, unless it has changed meanwhile."""
    of_key = Window.partitionBy("key").orderBy(sql.desc("offset"))
    numbered = (
        records(spark, asked, pull)
        .where("key IS NOT NULL")
        .withColumn("_n", sql.row_number().over(of_key))
    )
    newest = numbered.where("_n = 1")
    alive = shaped(spark, newest.where("value IS NOT NULL"), asked)
    gone = shaped(spark, newest.where("value IS NULL"), asked)
    changes = alive.withColumn("_gone", sql.lit(False)).unionByName(
        gone.withColumn("_gone", sql.lit(True))
    )
    view, branch = f"seb_{uuid.uuid4().hex}", f"seb_{uuid.uuid4().hex}"
    changes.createOrReplaceTempView(view)
    spark.sql(
        f"ALTER TABLE {pull.table} CREATE BRANCH {branch} "
        f"AS OF VERSION {pull.progress.snapshot} RETAIN {BRANCH_DAYS} DAYS"
    )
    try:
        names = [f"`{one}`" for one in alive.columns]
        spark.sql(
            f"MERGE INTO {pull.table}.branch_{branch} AS t USING {view} AS s ON t.key = s.key "
            "WHEN MATCHED AND s._gone AND s.offset > t.offset THEN DELETE "
            "WHEN MATCHED AND s.offset > t.offset THEN UPDATE SET "
            + ", ".join(f"{one} = s.{one}" for one in names)
            + f" WHEN NOT MATCHED AND NOT s._gone THEN INSERT ({', '.join(names)}) "
            + f"VALUES ({', '.join(f's.{one}' for one in names)})"
        )
        # A MERGE takes no properties; the last snapshot of the branch becomes the table's.
        mark = spark.table(pull.table).limit(0).writeTo(f"{pull.table}.branch_{branch}")
        mark.options(**pull.properties).append()
        catalog, _, rest = pull.table.partition(".")
        spark.sql(f"CALL {catalog}.system.fast_forward('{rest}', 'main', '{branch}')")
    finally:
        spark.sql(f"ALTER TABLE {pull.table} DROP BRANCH IF EXISTS {branch}")
        spark.catalog.dropTempView(view)


Write = Callable[[SparkSession, argparse.Namespace, Pull], None]


def run(spark: SparkSession, asked: argparse.Namespace, pull: Pull, write: Write) -> int:
    """The exit code: 0, or 3 when another run was quicker."""
    if pull.begin < pull.end:
        try:
            write(spark, asked, pull)
        except Exception:  # Spark passes on most of Iceberg's as they are
            now = progress_of(spark, pull.table, pull.log.topic_id).next_offset
            if now == pull.progress.next_offset:
                raise
            print(f"another run was quicker: {pull.table} is at {now}", file=sys.stderr)  # noqa: T201
            return jobs.EXIT_CONFLICT
    print(f"{pull.table} has the records of {pull.log.topic} below {pull.end}")  # noqa: T201
    return 0

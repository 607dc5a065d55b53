"""Somebody's own Iceberg table that jobs keep up with a topic: its snapshots tell how far it is.

A snapshot that a job commits has the properties `seb.topic-id` and `seb.next-offset`. A commit is
refused if the table has changed since the job looked at these, so that of two runs at once one
changes nothing.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from pyspark_seb.errors import ConflictError, LakeError
from pyspark_seb.jobs.frame import Result, Run
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def begin(run: Run, at: int | None = None) -> Pull:
    """`at`: instead of where the last run ended. Raises ApplianceError, LakeError."""
    asked = run.asked
    with run.appliance() as appliance:
        log = find_topics(appliance, [asked.topic])[asked.topic]
    progress = progress_of(run.spark, asked.table, log.topic_id)
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


def records(run: Run, pull: Pull) -> DataFrame:
    """With `topic_id`."""
    options = {
        **run.access,
        "topics": pull.log.topic,
        "startingOffsets": str(pull.begin),
        "endingOffsets": str(pull.end),
        "failOnCompaction": "false",
    }
    return run.records(options).withColumn("topic_id", sql.lit(pull.log.topic_id).cast("long"))


def shaped(run: Run, found: DataFrame) -> DataFrame:
    """As rows of the table: its columns by name, in its types. Raises LakeError for a column that
    the records do not have."""
    asked = run.asked
    wide = found.selectExpr("*", *asked.select)
    fields = run.spark.table(asked.table).schema
    missing = [one.name for one in fields if one.name not in wide.columns]
    if missing:
        raise LakeError(f"{asked.table} has columns that no --select makes: {', '.join(missing)}")
    return wide.select(*(sql.col(one.name).cast(one.dataType) for one in fields))


def overwrite(run: Run, pull: Pull) -> None:
    """Replace the table's rows of the topic from `begin` on by the records. Refused by Iceberg if
    such rows were committed since the progress was read, by whomever."""
    rows = shaped(run, records(run, pull))
    writer = rows.writeTo(pull.table).options(
        **pull.properties,
        **{
            "isolation-level": "serializable",
            "validate-from-snapshot-id": str(pull.progress.snapshot),
        },
    )
    mine = sql.col("topic_id") == pull.log.topic_id
    writer.overwrite(mine & (sql.col("offset") >= pull.begin))


def merge_newest(run: Run, pull: Pull) -> None:
    """Bring the newest record of each record key into the table, on a branch of the snapshot whose
    progress was read; the table is then moved there, unless it has changed meanwhile."""
    of_key = Window.partitionBy("key").orderBy(sql.desc("offset"))
    numbered = (
        records(run, pull).where("key IS NOT NULL").withColumn("_n", sql.row_number().over(of_key))
    )
    newest = numbered.where("_n = 1")
    alive = shaped(run, newest.where("value IS NOT NULL"))
    gone = shaped(run, newest.where("value IS NULL"))
    changes = alive.withColumn("_gone", sql.lit(False)).unionByName(
        gone.withColumn("_gone", sql.lit(True))
    )
    spark, view, branch = run.spark, f"seb_{uuid.uuid4().hex}", f"seb_{uuid.uuid4().hex}"
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


Write = Callable[[Run, Pull], None]


def work(run: Run, write: Write, at: int | None = None) -> Result:
    """Raises ApplianceError, ConflictError, LakeError."""
    run.step(f"asking how far {run.asked.table} is")
    return bring(run, begin(run, at), write)


def bring(run: Run, pull: Pull, write: Write) -> Result:
    figures = {"topic": pull.log.topic, "from_offset": pull.begin, "next_offset": pull.end}
    if run.asked.dry_run:
        sentence = f"{pull.end - pull.begin} offsets would be brought into {pull.table}."
        return Result(sentence, figures)
    if pull.begin < pull.end:
        run.step(f"writing the offsets {pull.begin} to {pull.end} into {pull.table}")
        try:
            write(run, pull)
        except Exception as error:  # Spark passes on most of Iceberg's as they are
            now = progress_of(run.spark, pull.table, pull.log.topic_id).next_offset
            if now == pull.progress.next_offset:
                raise
            raise ConflictError(f"{pull.table} is at offset {now}") from error
    return Result(f"{pull.table} has the records of {pull.log.topic} below {pull.end}.", figures)

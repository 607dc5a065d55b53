"""Somebody's own table that jobs keep up with a topic, and what all formats of tables share.

Each commit of a job tells how far the table is. A job that was overtaken changes nothing.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from pyspark_seb.errors import LakeError
from pyspark_seb.jobs.frame import Run
from pyspark_seb.options import TopicLog

TOPIC_ID: Final = "seb.topic-id"
NEXT_OFFSET: Final = "seb.next-offset"
LAST_ENTRY: Final = "seb.last-entry"
_GONE: Final = "_gone"  # of a change: its record is a tombstone


class Progress(NamedTuple):
    """A table at a snapshot (Iceberg) or version (Delta). `next_offset`: of the topic; None if no
    run has written it yet, or if nothing tells it any more. `last_entry`: of the topic then; None
    if an earlier release wrote it."""

    snapshot: int
    next_offset: int | None
    last_entry: str | None = None


class Pull(NamedTuple):
    """What one run brings into the table: offsets begin ≤ o < end of the topic."""

    log: TopicLog
    progress: Progress
    begin: int
    end: int

    def told(self, next_offset: int) -> dict[str, int | str]:
        """What the commit tells the next run."""
        last_entry = {} if self.log.last_entry is None else {LAST_ENTRY: self.log.last_entry}
        return {TOPIC_ID: self.log.topic_id, NEXT_OFFSET: next_offset, **last_entry}


class Target(ABC):
    """The table that a run of a job was asked to keep up."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.table: str = run.asked.table

    @property
    def spark(self) -> SparkSession:
        return self.run.spark

    @abstractmethod
    def progress(self, topic_id: int) -> Progress:
        """As the newest commit tells it."""

    @abstractmethod
    def overwrite(self, pull: Pull) -> None:
        """Replace the table's rows of the topic from `begin` on by the records. Raises what Spark
        does if such rows were committed since the progress was read, by whomever."""

    @abstractmethod
    def merge_newest(self, pull: Pull) -> None:
        """Bring the newest record of each record key into the table. Raises what Spark does if
        another run has committed since the progress was read."""

    def rows(self, pull: Pull) -> DataFrame:
        """A row for each record."""
        return self._shaped(self._records(pull))

    def _records(self, pull: Pull) -> DataFrame:
        """With `topic_id`."""
        options = {
            **self.run.access,
            "topics": pull.log.topic,
            "startingOffsets": str(pull.begin),
            "endingOffsets": str(pull.end),
            "failOnCompaction": "false",
        }
        topic_id = sql.lit(pull.log.topic_id).cast("long")
        records = self.run.records(options, {pull.log.topic: pull.log.topic_id})
        return records.withColumn("topic_id", topic_id)

    def _shaped(self, found: DataFrame, *more: str) -> DataFrame:
        """As rows of the table: its columns by name, in its types, and `more` of `found`. Raises
        LakeError for a column that the records do not have."""
        wide = found.selectExpr("*", *self.run.asked.select)
        fields = self.spark.table(self.table).schema
        if missing := [one.name for one in fields if one.name not in wide.columns]:
            names = ", ".join(missing)
            raise LakeError(f"{self.table} has columns that no --select makes: {names}")
        return wide.select(*(sql.col(one.name).cast(one.dataType) for one in fields), *more)

    def _merge(self, pull: Pull, table: str) -> None:
        """`table`: what MERGE calls it. A row that is newer than a record stays."""
        of_key = Window.partitionBy("key").orderBy(sql.desc("offset"))
        keyed = self._records(pull).where("key IS NOT NULL")
        newest = keyed.withColumn("_n", sql.row_number().over(of_key)).where("_n = 1")
        changes = self._shaped(newest.withColumn(_GONE, sql.isnull("value")), _GONE)
        view = f"seb_{uuid.uuid4().hex}"
        names = [f"`{one}`" for one in changes.columns if one != _GONE]
        changes.createOrReplaceTempView(view)
        try:
            self.spark.sql(
                f"MERGE INTO {table} AS t USING {view} AS s ON t.key = s.key "
                f"WHEN MATCHED AND s.{_GONE} AND s.offset > t.offset THEN DELETE "
                "WHEN MATCHED AND s.offset > t.offset THEN UPDATE SET "
                + ", ".join(f"{one} = s.{one}" for one in names)
                + f" WHEN NOT MATCHED AND NOT s.{_GONE} THEN INSERT ({', '.join(names)}) "
                + f"VALUES ({', '.join(f's.{one}' for one in names)})"
            )
        finally:
            self.spark.catalog.dropTempView(view)

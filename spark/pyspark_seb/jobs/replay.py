"""Append records of a Parquet lake to a topic again, in the order of their offsets.

    spark-submit replay.py --url http://seb:51313 --token-file seb.key \\
        --in lake/ --from-topic orders --until-offset 500000 --to-topic orders.replayed

Keys, values, headers and timestamps are kept; offsets are new. A run with the same topics and
offsets stores nothing twice, whatever failed before, if it is not seven days later. Without
--until-offset the lake's newest offset is taken, which another run may find further on.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import functions as sql

from pyspark_seb.errors import LakeError
from pyspark_seb.jobs.frame import Job, Result, Run
from pyspark_seb.jobs.steps.appending import append


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--in", dest="lake", required=True, help="the folder of the lake")
    parser.add_argument("--from-topic", required=True, help="whose records")
    parser.add_argument("--to-topic", required=True, help="the topic to append to")
    parser.add_argument("--from-offset", type=int, default=0)
    parser.add_argument("--until-offset", type=int, help="exclusive (default: all)")


def work(run: Run) -> Result:
    """Raises ApplianceError, LakeError, RowsChangedError."""
    asked = run.asked
    run.step(f"looking at {asked.lake}")
    records = run.spark.read.parquet(asked.lake).where(sql.col("topic") == asked.from_topic)
    if "value" not in records.columns:
        raise LakeError(f"{asked.lake} has no column value: pull without --columns to replay")
    records = records.where(sql.col("offset") >= asked.from_offset)
    if asked.until_offset is None:  # a retry of this run has to take the same
        last = records.agg(sql.max("offset")).collect()[0][0]
        asked.until_offset = asked.from_offset if last is None else last + 1
    records = records.where(sql.col("offset") < asked.until_offset)
    span = f"{asked.from_offset}-{asked.until_offset}"
    figures = {"from_offset": asked.from_offset, "until_offset": asked.until_offset}
    if asked.dry_run:
        count = records.count()
        sentence = f"{count} records would be appended to {asked.to_topic}."
        return Result(sentence, {**figures, "records": count})
    append(run, records, asked.to_topic, ["offset"], f"replay.{asked.from_topic}.{span}")
    return Result(f"{asked.to_topic} has the offsets {span} of {asked.from_topic}.", figures)


JOB = Job("replay", __doc__, add_arguments, work)

if __name__ == "__main__":
    sys.exit(JOB.main())

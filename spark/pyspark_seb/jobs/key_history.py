"""Every version of every record key, as a slowly changing dimension table (type 2).

    spark-submit key_history.py --url http://seb:51313 --token-file seb.key \\
        --topics customers --out dimensions/customers

One row for each record with a record key: topic, key, value, offset, valid_from (its timestamp),
valid_to (that of the next record of the key, null for the newest), is_current, is_deleted (a
tombstone). Writes the whole table anew, and puts it in place when it is complete.
"""

from __future__ import annotations

import argparse
import json
import sys

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from pyspark_seb.jobs import folders, frame
from pyspark_seb.jobs.frame import Job, Result, Run
from pyspark_seb.options import read_options, resolve_ranges


def add_arguments(parser: argparse.ArgumentParser) -> None:
    frame.add_reading(parser)
    parser.add_argument("--out", required=True, help="the folder of the table")


def history(records: DataFrame) -> DataFrame:
    """Versions in the order of their offsets: timestamps are the producers', and may go back."""
    of_key = Window.partitionBy("topic", "key").orderBy("offset")
    following = sql.lead("offset").over(of_key)
    return records.where(sql.col("key").isNotNull()).select(
        "topic",
        "key",
        "value",
        "offset",
        sql.col("timestamp").alias("valid_from"),
        sql.lead("timestamp").over(of_key).alias("valid_to"),
        following.isNull().alias("is_current"),
        sql.col("value").isNull().alias("is_deleted"),
    )


def work(run: Run) -> Result:
    asked = run.asked
    run.step("looking at the topics")
    with run.appliance() as appliance:
        ranges, _ = resolve_ranges(appliance, read_options(run.reading))
    offsets = sum(map(len, ranges))
    figures = {"offsets": offsets, "topics": [found.topic for found in ranges]}
    if asked.dry_run:
        return Result(f"{offsets} offsets of {len(ranges)} topics would be read.", figures)
    ends = json.dumps({found.topic: found.end for found in ranges})
    options = {**run.reading, "includeHeaders": "false", "endingOffsets": ends}
    records = run.records(options, {found.topic: found.topic_id for found in ranges})
    folders.write(run, history(records), asked.out, ("topic",))
    return Result(f"{asked.out} has the versions of {offsets} offsets.", figures)


JOB = Job("key_history", __doc__, add_arguments, work)

if __name__ == "__main__":
    sys.exit(JOB.main())

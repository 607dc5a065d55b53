"""Append records of a Parquet lake to a topic again, in the order of their offsets.

    spark-submit replay.py --url http://seb:51313 --token-file seb.key \\
        --in lake/ --from-topic orders --to-topic orders.replayed

Keys, values, headers and timestamps are kept; offsets are new. Within a run nothing is stored
twice, whatever fails; a second run appends everything again.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark_seb import jobs

COLUMNS = ("key", "value", "headers", "timestamp")


def arguments() -> argparse.ArgumentParser:
    parser = jobs.parser(__doc__)
    parser.add_argument("--in", dest="lake", required=True, help="the folder of the lake")
    parser.add_argument("--from-topic", required=True, help="whose records")
    parser.add_argument("--to-topic", required=True, help="the topic to append to")
    parser.add_argument("--from-offset", type=int, default=0)
    parser.add_argument("--until-offset", type=int, help="exclusive (default: all)")
    return parser


def run(spark: SparkSession, asked: argparse.Namespace) -> None:
    records = spark.read.parquet(asked.lake).where(sql.col("topic") == asked.from_topic)
    records = records.where(sql.col("offset") >= asked.from_offset)
    if asked.until_offset is not None:
        records = records.where(sql.col("offset") < asked.until_offset)
    # A topic has one order, so there is one task that appends.
    ordered = records.repartition(1).sortWithinPartitions("offset")
    kept = [name for name in COLUMNS if name in records.columns]
    appended = ordered.select(*kept).write.format("seb").mode("append")
    appended.options(**jobs.writing(asked), topic=asked.to_topic).save()


def main() -> int:
    asked = arguments().parse_args()
    run(jobs.session("replay"), asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())

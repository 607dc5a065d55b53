"""How far the consumer groups are behind, topic by topic; as a table of the lake with --out.

    spark-submit lag_report.py --url http://seb:51313 --token-file seb.key

Exit code 4 when a group is further behind than --max-records says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark_seb import jobs
from pyspark_seb.client import Appliance
from pyspark_seb.options import group_topics

EXIT_BEHIND = 4
SCHEMA = (
    "group string, topic string, committed_offset long, log_end_offset long, lag_records long, "
    "lag_bytes long, lag_seconds double"
)


def arguments() -> argparse.ArgumentParser:
    parser = jobs.parser(__doc__)
    parser.add_argument("--out", help="append the rows to this folder, as Parquet")
    parser.add_argument("--max-records", type=int, help="more lag than this is too much")
    return parser


def groups(appliance: Appliance) -> Iterator[str]:
    """The names of all groups that the API key sees."""
    after: str | None = ""
    while after is not None:
        page = appliance.get("/v1/groups", after=after).json()
        yield from (found["group"] for found in page["groups"])
        after = page["next_after"]


def report(spark: SparkSession, asked: argparse.Namespace) -> DataFrame:
    with closing(Appliance(asked.url, asked.token_file)) as appliance:
        rows = [
            (
                group,
                topic,
                found["committed_offset"],
                found["log_end_offset"],
                found["lag_records"],
                found["lag_bytes"],
                float(found["lag_seconds"]),
            )
            for group in groups(appliance)
            for topic, found in group_topics(appliance, group).items()
        ]
    return spark.createDataFrame(rows, SCHEMA)


def main() -> int:
    asked = arguments().parse_args()
    table = report(jobs.session("lag_report"), asked).cache()
    table.orderBy(sql.desc("lag_records")).show(100, truncate=False)
    if asked.out is not None:
        stamped = table.withColumn("reported", sql.current_timestamp())
        stamped.write.mode("append").parquet(asked.out)
    if asked.max_records is not None and table.where(table.lag_records > asked.max_records).count():
        return EXIT_BEHIND
    return 0


if __name__ == "__main__":
    sys.exit(main())

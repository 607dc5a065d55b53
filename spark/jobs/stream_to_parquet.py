"""Follow topics into a Parquet lake, exactly once; the group shows how far it is.

    spark-submit stream_to_parquet.py --url http://seb:51313 --token-file seb.key \\
        --group lake --topics 'orders.**' --out lake/ --checkpoint lake.checkpoint/

Runs until it is stopped, or with --once until it has read what is there now. The checkpoint is the
truth; the group is a copy of it for `seb groups`, and pins where a first run began.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark_seb import jobs


def arguments() -> argparse.ArgumentParser:
    parser = jobs.parser(__doc__)
    jobs.add_reading(parser)
    parser.add_argument("--group", required=True, help="the consumer group that shows the progress")
    parser.add_argument("--out", required=True, help="the folder of the lake")
    parser.add_argument("--checkpoint", required=True, help="a folder that outlives the cluster")
    parser.add_argument(
        "--from",
        dest="start",
        default="earliest",
        help="where a first run begins if the group has no offset (default: earliest)",
    )
    parser.add_argument("--max-records", type=int, help="in one batch (default: no limit)")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--once", action="store_true", help="read what is there now, then end")
    when.add_argument("--every", default="1 minute", help="a batch so often (default: 1 minute)")
    return parser


def start(spark: SparkSession, asked: argparse.Namespace) -> StreamingQuery:
    options = {**jobs.reading(asked), "group": asked.group, "startingOffsets": asked.start}
    if asked.max_records is not None:
        options["maxRecordsPerTrigger"] = str(asked.max_records)
    records = jobs.with_date(spark.readStream.format("seb").options(**options).load())
    writer = (
        records.writeStream.format("parquet")
        .partitionBy("topic", "date")
        .option("path", asked.out)
        .option("checkpointLocation", asked.checkpoint)
    )
    if asked.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=asked.every).start()


def main() -> int:
    asked = arguments().parse_args()
    start(jobs.session("stream_to_parquet"), asked).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Pull what a group has not read yet into a Parquet lake, and commit: effectively once.

    spark-submit pull_committed.py --url http://seb:51313 --token-file seb.key \\
        --group lake --topics 'orders.**' --out lake/

Writes OUT/topic=T/date=D/offsets=FROM-TO/*.parquet. The group moves only when all is written, by
compare-and-set. A run that died is followed by one that writes the same directories again, and
nothing is there twice. Exit code 3: another run of this group was quicker; nothing is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing

from pyspark.sql import SparkSession
from pyspark_seb import jobs, pulling
from pyspark_seb.client import Appliance
from pyspark_seb.errors import ApplianceError
from pyspark_seb.options import read_options

EXIT_CONFLICT = 3


def arguments() -> argparse.ArgumentParser:
    parser = jobs.parser(__doc__)
    jobs.add_reading(parser)
    parser.add_argument("--group", required=True, help="the consumer group that is moved")
    parser.add_argument("--out", required=True, help="the folder of the lake")
    parser.add_argument("--max-records", type=int, help="of a topic, in one run (default: all)")
    return parser


def run(spark: SparkSession, asked: argparse.Namespace) -> int:
    """How many offsets were pulled. Raises ApplianceError, RecordsGoneError."""
    options = {**jobs.reading(asked), "group": asked.group}
    with closing(Appliance(asked.url, asked.token_file)) as appliance:
        pull = pulling.begin(appliance, read_options(options), asked.max_records)
    if not pull.ranges:
        return 0
    options["topics"] = ",".join(found.topic for found in pull.ranges)
    options["startingOffsets"] = json.dumps({found.topic: found.start for found in pull.ranges})
    options["endingOffsets"] = json.dumps({found.topic: found.end for found in pull.ranges})
    names = {found.topic: f"{found.start}-{found.end}" for found in pull.ranges}
    records = jobs.with_date(spark.read.format("seb").options(**options).load())
    (
        records.withColumn("offsets", jobs.by_topic(names))
        .write.partitionBy("topic", "date", "offsets")
        .option("partitionOverwriteMode", "dynamic")
        .mode("overwrite")
        .parquet(asked.out)
    )
    with closing(Appliance(asked.url, asked.token_file)) as appliance:
        pulling.finish(appliance, asked.group, pull)
    return sum(map(len, pull.ranges))


def main() -> int:
    asked = arguments().parse_args()
    try:
        pulled = run(jobs.session("pull_committed"), asked)
    except ApplianceError as error:
        if error.code != "offset_conflict":
            raise
        print(f"another run of group {asked.group} was quicker: {error.detail}", file=sys.stderr)
        return EXIT_CONFLICT
    print(f"pulled {pulled} offsets into {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

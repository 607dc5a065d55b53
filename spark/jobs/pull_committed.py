"""Pull what a group has not read yet into a Parquet lake, and commit: effectively once.

    spark-submit pull_committed.py --url http://seb:51313 --token-file seb.key \\
        --group lake --topics 'orders.**' --out lake/

Writes OUT/topic=T/date=D/offsets=FROM-TO/*.parquet. The group moves only when all is written, by
compare-and-set. Directories are put in place whole, by a rename. A run that died is followed by one
that puts the missing ones there. Exit code 3: another run of this group was quicker; nothing is
wrong.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark_seb import jobs, lake


def arguments() -> argparse.ArgumentParser:
    parser = jobs.parser(__doc__)
    jobs.add_reading(parser)
    parser.add_argument("--group", required=True, help="the consumer group that is moved")
    parser.add_argument("--out", required=True, help="the folder of the lake")
    parser.add_argument("--max-records", type=int, help="of a topic, in one run (default: all)")
    return parser


def run(spark: SparkSession, asked: argparse.Namespace) -> int:
    """How many offsets were pulled. Raises ApplianceError, RecordsGoneError, LakeError."""
    return lake.pull(spark, asked, {**jobs.reading(asked), "group": asked.group})


def main() -> int:
    asked = arguments().parse_args()

    def pull() -> None:
        pulled = run(jobs.session("pull_committed"), asked)
        print(f"pulled {pulled} offsets into {asked.out}")

    return jobs.unless_quicker(pull)


if __name__ == "__main__":
    sys.exit(main())

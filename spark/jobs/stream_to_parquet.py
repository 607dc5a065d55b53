"""Follow topics into a Parquet lake, exactly once: pull_committed.py again and again.

    spark-submit stream_to_parquet.py --url http://seb:51313 --token-file seb.key \\
        --group lake --topics 'orders.**' --out lake/

Runs until it is stopped, or with --once until it has read what was there at its start. The group
says how far it is, and there is no checkpoint. Exit code 3: another run of this group was quicker.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing

from pyspark.sql import SparkSession
from pyspark_seb import jobs, lake
from pyspark_seb.client import Appliance
from pyspark_seb.options import find_topics, read_options

_UNITS_S = {"second": 1, "minute": 60, "hour": 3600}


def arguments() -> argparse.ArgumentParser:
    parser = jobs.parser(__doc__)
    jobs.add_reading(parser)
    parser.add_argument("--group", required=True, help="the consumer group that is moved")
    parser.add_argument("--out", required=True, help="the folder of the lake")
    parser.add_argument("--checkpoint", help="not used any more: the group is the truth")
    parser.add_argument(
        "--from",
        dest="start",
        default="earliest",
        help="where a first run begins if the group has no offset (default: earliest)",
    )
    parser.add_argument("--max-records", type=int, help="of a topic, at a time (default: no limit)")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--once", action="store_true", help="read what is there now, then end")
    when.add_argument(
        "--every", type=seconds, default="1 minute", help="pull so often (default: 1 minute)"
    )
    return parser


def seconds(text: str) -> int:
    """Of `30 seconds`, `1 minute`, `2 hours`. Raises ValueError."""
    number, unit = text.split()
    unit_s = _UNITS_S.get(unit.removesuffix("s"))
    if unit_s is None:
        raise ValueError(f"unknown unit {unit!r}")
    return int(number) * unit_s


def run(spark: SparkSession, asked: argparse.Namespace) -> None:
    """Raises ApplianceError (`offset_conflict`), RecordsGoneError, LakeError."""
    options = {**jobs.reading(asked), "group": asked.group, "startingOffsets": asked.start}
    if not asked.once:
        while True:
            begun_s = time.monotonic()
            lake.pull(spark, asked, options)
            time.sleep(max(0.0, begun_s + asked.every - time.monotonic()))
    with closing(Appliance(asked.url, asked.token_file)) as appliance:
        topics = find_topics(appliance, read_options(options).topics)
    ends = {topic: log.log_end_offset for topic, log in topics.items()}
    while lake.pull(spark, asked, options, ends):
        pass


def main() -> int:
    asked = arguments().parse_args()
    return jobs.unless_quicker(lambda: run(jobs.session("stream_to_parquet"), asked))


if __name__ == "__main__":
    sys.exit(main())

"""Compact a huge topic on the cluster: of each record key the newest record stays, at its offset.

    spark-submit compact_topic.py --url http://seb:51313 --token-file seb.key --topic customers

Reads the topic's segments from the bucket, stores new ones, and hands them over to the appliance,
which checks them record by record and puts them in force. What is appended meanwhile is not
touched, and a run that dies has changed nothing. The topic's cleanup has to be compact, and the API
key needs the grants to consume and to manage the topic. Exit code 3: the topic was changed while
the job ran, most likely by another run of it: nothing is wrong, and run again it is done.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing, suppress

from pyspark.sql import SparkSession
from pyspark_seb import compacting, jobs
from pyspark_seb.compacting import Access
from pyspark_seb.errors import ApplianceError

EXIT_CONFLICT = 3


def arguments() -> argparse.ArgumentParser:
    parser = jobs.parser(__doc__)
    parser.add_argument("--topic", required=True, help="the topic to compact")
    parser.add_argument(
        "--wait",
        type=float,
        default=3600.0,
        help="seconds to wait for the appliance to check what was made (default: 3600)",
    )
    parser.add_argument("--tasks", type=int, default=1, help="at least so many tasks read")
    return parser


def run(spark: SparkSession, asked: argparse.Namespace) -> compacting.Outcome:
    """Raises ApplianceError, and what Spark makes of it in a task."""
    access = Access(asked.url, asked.token_file)
    with closing(access.open()) as appliance:
        wanted = compacting.begin(appliance, asked.topic)
        try:
            if not wanted.dirty_bytes:
                return compacting.Outcome("in_force", "all of it was compacted before")
            with compacting.kept_alive(access, wanted):
                compacting.compact(spark, access, wanted, asked.tasks)
                return compacting.outcome(appliance, wanted, asked.wait)
        finally:
            with suppress(ApplianceError):  # the appliance forgets it in an hour
                appliance.request("DELETE", wanted.path)


def main() -> int:
    asked = arguments().parse_args()
    outcome = run(jobs.session("compact_topic"), asked)
    print(f"{asked.topic}: {outcome.state.replace('_', ' ')}. {outcome.reason}".strip())
    return {"in_force": 0, "refused": EXIT_CONFLICT}.get(outcome.state, 1)


if __name__ == "__main__":
    sys.exit(main())

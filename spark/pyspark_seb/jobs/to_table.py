"""Keep somebody's own Iceberg or Delta table up with a topic: each record is a row once.

    spark-submit to_table.py --url http://seb:51313 --token-file seb.key \\
        --topic orders --table my.db.orders

The table has the columns `topic_id` (long) and `offset` (long), and of `topic`, `timestamp`, `key`,
`value` and `headers` what it wants; others by --select. Several topics may share it. Each run
replaces the rows of the topic from the offset on where the last run ended, which the table's
commits tell (`seb.next-offset`). Exit code 3: another run was quicker; nothing is wrong.
"""

from __future__ import annotations

import argparse
import sys

from pyspark_seb.jobs.frame import Job, Result, Run
from pyspark_seb.jobs.steps import keeping


def add_arguments(parser: argparse.ArgumentParser) -> None:
    keeping.add_arguments(parser)
    parser.add_argument("--from-offset", type=int, help="write the rows from here on anew")


def work(run: Run) -> Result:
    return keeping.work(run, lambda to, pull: to.overwrite(pull), run.asked.from_offset)


JOB = Job("to_table", __doc__, add_arguments, work)

if __name__ == "__main__":
    sys.exit(JOB.main())

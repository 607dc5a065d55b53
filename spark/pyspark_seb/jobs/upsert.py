"""Keep the newest record of each record key in somebody's own Iceberg or Delta table.

    spark-submit upsert.py --url http://seb:51313 --token-file seb.key \\
        --topic customers --table my.db.customers

The table has the columns `key` (string or binary) and `offset` (long), and of `topic_id`, `topic`,
`timestamp`, `value` and `headers` what it wants; others by --select. Rows change by MERGE, and a
tombstone deletes the row of its record key. One topic for a table. Each run begins where the last
one ended, which the table's commits tell (`seb.next-offset`). Exit code 3: another run was quicker;
nothing is wrong.
"""

from __future__ import annotations

import sys

from pyspark_seb.jobs.frame import Job, Result, Run
from pyspark_seb.jobs.steps import keeping


def work(run: Run) -> Result:
    return keeping.work(run, lambda to, pull: to.merge_newest(pull))


JOB = Job("upsert", __doc__, keeping.add_arguments, work)

if __name__ == "__main__":
    sys.exit(JOB.main())

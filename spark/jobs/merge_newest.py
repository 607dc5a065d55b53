"""Keep the newest record of each record key in somebody's own Iceberg table, by MERGE.

    spark-submit merge_newest.py --url http://seb:51313 --token-file seb.key \\
        --topic customers --table my.db.customers

The table has the columns `key` (string or binary) and `offset` (long), and of `topic_id`, `topic`,
`timestamp`, `value` and `headers` what it wants; others by --select. A tombstone deletes the row of
its record key. One topic for a table. Each run begins where the last one ended, which the snapshots
tell (`seb.next-offset`). Exit code 3: another run was quicker; nothing is wrong.
"""

from __future__ import annotations

import sys

from pyspark_seb import jobs, targets


def main() -> int:
    asked = targets.arguments(__doc__).parse_args()
    spark = jobs.session("merge_newest")
    return targets.run(spark, asked, targets.begin(spark, asked), targets.merge_newest)


if __name__ == "__main__":
    sys.exit(main())

"""Pull what a group has not read yet into a Parquet lake, and commit: effectively once.

    spark-submit pull.py --url http://seb:51313 --token-file seb.key \\
        --group lake --topics 'orders.**' --out lake/

Writes OUT/topic=T/date=D/offsets=FROM-TO/*.parquet, which any engine reads as OUT/**/*.parquet. The
group moves when all is written, by compare-and-set. Directories are put in place whole, by a
rename. A run after one that died puts the missing ones there.

--columns makes typed columns of JSON values, as a topic's table has them. Records that do not fit
go to --dead-letters, in the same layout, with the value in `_raw` and the reason in `_error`.
"""

from __future__ import annotations

import argparse
import re
import sys
import time

from pyspark_seb.jobs import frame, lake
from pyspark_seb.jobs.frame import Job, Result, Run

_UNITS_S = {"second": 1, "minute": 60, "hour": 3600}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    frame.add_reading(parser)
    parser.add_argument("--group", required=True, help="the consumer group that is moved")
    parser.add_argument("--out", required=True, help="the folder of the lake")
    parser.add_argument("--max-records", type=int, help="of a topic, at a time (default: all)")
    parser.add_argument(
        "--from",
        dest="start",
        default="earliest",
        help="where a first run begins if the group has no offset (default: earliest)",
    )
    parser.add_argument(
        "--every", type=seconds, help="pull again and again, so often: 30s, 1 minute, 2 hours"
    )
    parser.add_argument(
        "--columns", help="of the values, as 'total:double=$.total, name:string', or with _rest"
    )
    parser.add_argument("--dead-letters", help="the folder of records that do not fit --columns")


def seconds(text: str) -> int:
    """Of `30s`, `1 minute`, `2 hours`. Raises ValueError."""
    found = re.fullmatch(r"(\d+) ?(s|m|h|second|minute|hour)s?", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time like '1 minute'")
    unit = next(one for one in _UNITS_S if one.startswith(found[2]))
    return int(found[1]) * _UNITS_S[unit]


def work(run: Run) -> Result:
    """Raises ApplianceError (`offset_conflict`), RecordsGoneError, LakeError, BadOptionError."""
    asked = run.asked
    if asked.every is None or asked.dry_run:
        return once(run)
    while True:
        begun_s = time.monotonic()
        run.step(once(run).sentence)
        time.sleep(max(0.0, begun_s + asked.every - time.monotonic()))


def once(run: Run) -> Result:
    begun = lake.pull(run)
    pulled = sum(map(len, begun.ranges))
    ranges = {found.topic: [found.start, found.end] for found in begun.ranges}
    verb = "would be pulled" if run.asked.dry_run else "were pulled"
    sentence = f"{pulled} offsets of {len(ranges)} topics {verb} into {run.asked.out}."
    return Result(sentence, {"offsets": pulled, "ranges": ranges})


JOB = Job("pull", __doc__, add_arguments, work)

if __name__ == "__main__":
    sys.exit(JOB.main())

"""How far the consumer groups are behind, topic by topic; as a table of the lake with --out.

    spark-submit lag_report.py --url http://seb:51313 --token-file seb.key

Each run with --out adds a directory to it, which is there whole or not at all. Exit code 4 when a
group is further behind than --max-records says.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark_seb.answers import Groups
from pyspark_seb.client import Appliance
from pyspark_seb.jobs import folders
from pyspark_seb.jobs.frame import Job, Result, Run
from pyspark_seb.options import group_topics

EXIT_BEHIND = 4
COLUMNS = {
    "group": "string",
    "topic": "string",
    "committed_offset": "long",
    "log_end_offset": "long",
    "lag_records": "long",
    "lag_bytes": "long",
    "lag_seconds": "double",
}
SCHEMA = ", ".join(
    f"`{name}` {kind}" for name, kind in {**COLUMNS, "reported": "timestamp"}.items()
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", help="append the rows to this folder, as Parquet")
    parser.add_argument("--max-records", type=int, help="more lag than this is too much")


def groups(appliance: Appliance) -> Iterator[str]:
    """The names of all groups that the API key sees."""
    after: str | None = ""
    while after is not None:
        page = appliance.get("/v1/groups", after=after).json(Groups)
        yield from (found["group"] for found in page["groups"])
        after = page["next_after"]


def report(appliance: Appliance) -> list[dict[str, Any]]:
    """Rows with the columns of SCHEMA, the largest lag first."""
    rows: list[dict[str, Any]] = [
        {name: {"group": group, **found}[name] for name in COLUMNS}
        for group in groups(appliance)
        for found in group_topics(appliance, group).values()
    ]
    return sorted(rows, key=lambda row: -row["lag_records"])


def work(run: Run) -> Result:
    """Spark is needed only for --out."""
    asked = run.asked
    run.step("asking for the groups")
    with run.appliance() as appliance:
        rows = report(appliance)
    if asked.out is not None and rows and not asked.dry_run:
        now = datetime.now(UTC)
        given = [(*list(row.values())[:-1], float(row["lag_seconds"]), now) for row in rows]
        name = f"at={now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
        table = run.spark.createDataFrame(given, SCHEMA).coalesce(1)
        folders.write(run, table, asked.out, name=name)
    behind = [row for row in rows if row["lag_records"] > (asked.max_records or 0)]
    is_behind = asked.max_records is not None and bool(behind)
    code = EXIT_BEHIND if is_behind else 0
    lines = ["  ".join(map(str, row.values())) for row in rows]
    return Result("\n".join(["  ".join(COLUMNS), *lines]), {"groups": rows}, code)


JOB = Job("lag_report", __doc__, add_arguments, work)

if __name__ == "__main__":
    sys.exit(JOB.main())

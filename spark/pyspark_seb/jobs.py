"""What the jobs share: their common arguments, a session, the options of the data source."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from pyspark_seb.errors import ApplianceError
from seb_appliance import limits

EXIT_CONFLICT: Final = 3
# So many rows go to a sink at once, and into one request.
ROWS_AT_ONCE: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """With the arguments that every job has. `doc`: of the job's module."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--url", required=True, help="of the appliance, as http://seb:51313")
    made.add_argument(
        "--token-file",
        required=True,
        help="a file with an API key and nothing else, on every host of the cluster",
    )
    return made


def add_reading(made: argparse.ArgumentParser) -> None:
    """The arguments of a job that reads topics."""
    made.add_argument("--topics", required=True, help="names and patterns, as orders.*,iot.**")
    made.add_argument(
        "--transport",
        choices=("api", "direct"),
        default="api",
        help="direct: tasks read segments from the bucket (default: api)",
    )
    made.add_argument(
        "--skip-lost",
        action="store_true",
        help="go on without records that retention has taken, instead of failing",
    )


def reading(asked: argparse.Namespace) -> dict[str, str]:
    """Options for `format("seb")`."""
    return {
        **writing(asked),
        "topics": asked.topics,
        "transport": asked.transport,
        "failOnDataLoss": "false" if asked.skip_lost else "true",
        "failOnCompaction": "false",  # what newer records have replaced is not missed
    }


def writing(asked: argparse.Namespace) -> dict[str, str]:
    return {"url": asked.url, "tokenFile": asked.token_file}


def session(name: str) -> SparkSession:
    """The one of spark-submit. Times and dates are those of UTC, as the appliance's are."""
    made = SparkSession.builder.appName(name).getOrCreate()
    made.conf.set("spark.sql.session.timeZone", "UTC")
    made.conf.set(ROWS_AT_ONCE, str(limits.RECORDS_IN_BATCHES_MAX))
    return made


def unless_quicker(run: Callable[[], None]) -> int:
    """The exit code: 0, or 3 when another run of the group has committed meanwhile."""
    try:
        run()
    except ApplianceError as error:
        if error.code != "offset_conflict":
            raise
        print(f"another run of the group was quicker: {error.detail}", file=sys.stderr)  # noqa: T201
        return EXIT_CONFLICT
    return 0


def with_date(records: DataFrame) -> DataFrame:
    """And a column `date` of the records' timestamps, to partition a lake by."""
    return records.withColumn("date", sql.to_date("timestamp"))


def by_topic(values: dict[str, Any]) -> Any:
    """A column that has for each topic what `values` says."""
    pairs = [sql.lit(part) for item in values.items() for part in item]
    return sql.create_map(*pairs)[sql.col("topic")]

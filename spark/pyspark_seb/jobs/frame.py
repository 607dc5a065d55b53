"""The frame of all jobs: arguments, dry run, progress, retries, exit codes, errors as sentences.

A job's work may be done again after any failure: what a failed run has stored is found, and not
stored again. So the frame repeats it when the appliance was unavailable.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from pyspark_seb.client import Appliance
from pyspark_seb.frames import check_topics
from pyspark_seb.jobs.failures import Failure, failure_of
from pyspark_seb.jobs.steps.meanwhile import meanwhile
from seb_appliance import limits

EXIT_FAILED: Final = 1
EXIT_CONFLICT: Final = 3
# So many rows go to a sink at once, and into one request.
ROWS_AT_ONCE: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Spark's default, INT96, has no statistics, and few engines know it.
TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
PROGRESS_S: Final = 10.0
_PAUSE_S: Final = 5.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """`figures`: for programs, as JSON values."""

    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    exit_code: int = 0


class Run:
    """What the work of a job is given. `progress`: takes a line before each step."""

    def __init__(
        self,
        asked: argparse.Namespace,
        spark: SparkSession | None = None,
        progress: Progress = lambda _: None,
        name: str = "seb",
    ) -> None:
        self.asked = asked
        self.step = progress
        self._given, self._name = spark, name

    @cached_property
    def spark(self) -> SparkSession:
        """The one of spark-submit. Times and dates are those of UTC, as the appliance's are."""
        made = self._given or SparkSession.builder.appName(self._name).getOrCreate()
        made.conf.set("spark.sql.session.timeZone", "UTC")
        made.conf.set(ROWS_AT_ONCE, str(limits.RECORDS_IN_BATCHES_MAX))
        made.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
        return made

    @contextmanager
    def appliance(self) -> Iterator[Appliance]:
        with closing(Appliance(self.asked.url, self.asked.token_file)) as made:
            yield made

    @property
    def access(self) -> dict[str, str]:
        """Options for `format("seb")`, to write."""
        return {"url": self.asked.url, "tokenFile": self.asked.token_file}

    @property
    def reading(self) -> dict[str, str]:
        """Options for `format("seb")` of a job with the arguments of `add_reading`."""
        asked = self.asked
        return {
            **self.access,
            "topics": asked.topics,
            "transport": asked.transport,
            "failOnDataLoss": str(not asked.skip_lost).lower(),
            "failOnCompaction": "false",  # what newer records have replaced is not missed
        }

    def records(self, options: Mapping[str, str], topic_ids: Mapping[str, int]) -> DataFrame:
        """Of these very topics. Raises TopicChangedError."""
        loaded = self.spark.read.format("seb").options(**options).load()
        check_topics(loaded, topic_ids)
        return loaded


@dataclass(frozen=True, slots=True)
class Job:
    """`doc`: of its module. `work`: raises what `failure_of` knows."""

    name: str
    doc: str | None
    add_arguments: Callable[[argparse.ArgumentParser], None]
    work: Callable[[Run], Result]

    def parser(self) -> argparse.ArgumentParser:
        made = argparse.ArgumentParser(
            prog=f"python -m pyspark_seb.jobs.{self.name}",
            description=self.doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="Exit codes: 0 done; 1 failed, with a sentence on stderr; 2 wrong arguments; "
            "3 another run was quicker: nothing is wrong.",
        )
        made.add_argument("--url", required=True, help="of the appliance, as http://seb:51313")
        made.add_argument(
            "--token-file",
            required=True,
            help="a file with an API key and nothing else, on every host of the cluster",
        )
        self.add_arguments(made)
        made.add_argument("--dry-run", action="store_true", help="say what it would do; do nothing")
        made.add_argument("--json", action="store_true", help="print the result as a JSON object")
        made.add_argument(
            "--retries",
            type=int,
            default=3,
            help="tries after one that failed because the appliance was unavailable (default: 3)",
        )
        return made

    def main(
        self,
        given: Sequence[str] | None = None,
        spark: SparkSession | None = None,
        progress: Progress | None = None,
    ) -> int:
        """The exit code. Progress goes to stderr, the result to stdout."""
        asked = self.parser().parse_args(given)
        run = Run(asked, spark, progress or _Lines(self.name), self.name)
        result = self._result(run)
        if isinstance(result, Failure):
            code = EXIT_CONFLICT if result.is_conflict else EXIT_FAILED
            what = "another run was quicker" if result.is_conflict else f"failed ({result.kind})"
            shown: dict[str, Any] = {"error": result.kind, "message": result.sentence}
            print(f"{self.name}: {what}: {result.sentence}", file=sys.stderr)
        else:
            code, shown = result.exit_code, {"message": result.sentence, **result.figures}
            if not asked.json:
                print(result.sentence)
        if asked.json:
            print(json.dumps({"job": self.name, "exit_code": code, **shown}, default=str))
        return code

    def _result(self, run: Run) -> Result | Failure:
        left = run.asked.retries
        while True:
            try:
                with _stages(run):
                    return self.work(run)
            except Exception as error:
                failure = failure_of(error)
            if not failure.may_pass or left < 1:
                return failure
            left -= 1
            run.step(f"trying again: {failure.sentence}")
            time.sleep(_PAUSE_S)


class _Lines:
    """Progress on stderr, with the seconds since the job began."""

    def __init__(self, name: str) -> None:
        self._name, self._begun_s = name, time.monotonic()

    def __call__(self, line: str) -> None:
        print(
            f"{self._name}: {time.monotonic() - self._begun_s:.0f} s: {line}",
            file=sys.stderr,
            flush=True,
        )


def _stages(run: Run) -> AbstractContextManager[None]:
    """Meanwhile, say from time to time how many tasks of Spark's stages are done."""

    def watch() -> None:
        with suppress(Exception):  # Spark Connect has no tracker; Spark may be ending
            tracker = SparkSession.active().sparkContext.statusTracker()
            for number in tracker.getActiveStageIds():
                if stage := tracker.getStageInfo(number):
                    done, of = stage.numCompletedTasks, stage.numTasks
                    run.step(f"Spark: stage {number}: {done} of {of} tasks")

    return meanwhile("progress", PROGRESS_S, watch)


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
        help="continue without records that retention has removed, instead of failing",
    )


def with_date(records: DataFrame) -> DataFrame:
    """And a column `date` of the records' timestamps, to partition a lake by."""
    return records.withColumn("date", sql.to_date("timestamp"))


def by_topic(values: dict[str, Any]) -> Any:
    """A column that has for each topic what `values` says."""
    pairs = [sql.lit(part) for item in values.items() for part in item]
    return sql.create_map(*pairs)[sql.col("topic")]

"""One run of a job that keeps somebody's own table up with a topic, Iceberg or Delta."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pyspark_seb.errors import ConflictError, LakeError
from pyspark_seb.jobs.frame import Result, Run
from pyspark_seb.jobs.steps.delta import Delta
from pyspark_seb.jobs.steps.iceberg import Iceberg
from pyspark_seb.jobs.steps.targets import Pull, Target
from pyspark_seb.options import check_entry, find_topics

Write = Callable[[Target, Pull], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="in a catalog of Spark, as my.db.orders")
    parser.add_argument(
        "--select",
        nargs="+",
        default=[],
        metavar="SQL",
        help="other columns of the table, as expressions over those of a record: "
        "\"CAST(get_json_object(CAST(value AS STRING), '$.total') AS DOUBLE) AS total\"",
    )
    parser.add_argument("--max-records", type=int, help="in one run (default: all)")


def work(run: Run, write: Write, at: int | None = None) -> Result:
    """`at`: begin there, and not where the last run ended. Raises ApplianceError, ConflictError,
    LakeError."""
    run.step(f"asking how far {run.asked.table} is")
    target = target_of(run)
    return bring(target, begin(target, at), write)


def target_of(run: Run) -> Target:
    """Raises LakeError for a table of another format."""
    described = run.spark.sql(f"DESCRIBE TABLE EXTENDED {run.asked.table}")
    told = described.where("col_name = 'Provider'").first()
    provider = "" if told is None else told.data_type.lower()
    if provider == "iceberg":
        return Iceberg(run)
    if provider == "delta":
        return Delta(run)
    raise LakeError(
        f"{run.asked.table} is a table of the format {provider!r}: not Iceberg or Delta"
    )


def begin(target: Target, at: int | None = None) -> Pull:
    """Raises ApplianceError, LakeError, TopicChangedError."""
    asked = target.run.asked
    with target.run.appliance() as appliance:
        log = find_topics(appliance, [asked.topic])[asked.topic]
        progress = target.progress(log.topic_id)
        if progress.last_entry is not None:
            check_entry(appliance, log.topic, progress.last_entry)
    if at is None:
        at = progress.next_offset
    at = log.log_start_offset if at is None else at
    if at > log.log_end_offset:
        raise LakeError(
            f"{asked.table} is at offset {at}, and the log of {asked.topic} ends at "
            f"{log.log_end_offset}"
        )
    end = log.log_end_offset
    if asked.max_records is not None:
        end = min(end, at + asked.max_records)
    return Pull(log, progress, at, end)


def bring(target: Target, pull: Pull, write: Write) -> Result:
    run, table, topic = target.run, target.table, pull.log.topic
    figures = {"topic": topic, "from_offset": pull.begin, "next_offset": pull.end}
    if run.asked.dry_run:
        sentence = f"{pull.end - pull.begin} offsets would be brought into {table}."
        return Result(sentence, figures)
    if pull.begin < pull.end:
        run.step(f"writing the offsets {pull.begin} to {pull.end} into {table}")
        try:
            write(target, pull)
        except Exception as error:  # Spark passes on most of the formats' as they are
            now = target.progress(pull.log.topic_id).next_offset
            if now == pull.progress.next_offset:
                raise
            raise ConflictError(f"{table} is at offset {now}") from error
    return Result(f"{table} has the records of {topic} below {pull.end}.", figures)

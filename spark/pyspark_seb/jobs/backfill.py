"""Append Parquet files or a Kafka topic to a topic, once.

    spark-submit backfill.py --url http://seb:51313 --token-file seb.key \\
        --in old/orders --select "id AS key" "to_json(struct(*)) AS value" "created AS timestamp" \\
        --to-topic orders

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1 backfill.py … \\
        --kafka kafka:9092 --from-topic orders --until '{"0": 500000, "1": 499123}' \\
        --to-topic orders

Record keys, values, headers and timestamps are kept; offsets are new. The files are read in the
order of their names. The partitions of a Kafka topic become one log, each in its own order, and
among each other by time. A second run with the same arguments and the same source stores nothing
twice, whatever failed before, if it is not seven days later.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from pyspark_seb.errors import BadOptionError
from pyspark_seb.jobs.frame import Job, Result, Run
from pyspark_seb.jobs.steps.appending import append

_EARLIEST: Final = -2  # in the JSON of Spark's Kafka source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--in", dest="folder", help="a folder of Parquet files, or a pattern")
    source.add_argument("--kafka", metavar="HOST:PORT", help="brokers of a Kafka cluster")
    parser.add_argument("--to-topic", required=True, help="the topic to append to")
    parser.add_argument(
        "--select",
        nargs="+",
        default=["*"],
        metavar="SQL",
        help="key, value, headers and timestamp, as expressions over the columns of the source "
        "(default: its columns of these names)",
    )
    parser.add_argument(
        "--order-by",
        nargs="+",
        default=[],
        metavar="SQL",
        help="of files: before their names and the rows in them",
    )
    parser.add_argument("--from-topic", help="of Kafka")
    parser.add_argument(
        "--from",
        dest="start",
        type=offsets,
        default={},
        help="of Kafka: the first offset of each partition (default: the earliest)",
    )
    parser.add_argument(
        "--until",
        type=offsets,
        help="of Kafka: the end of every partition, exclusive, as kafka-get-offsets shows it: "
        '\'{"0": 500000, "1": 499123}\'',
    )
    parser.add_argument(
        "--kafka-config",
        metavar="FILE",
        help="of Kafka: settings of a consumer, one a line, as security.protocol=SASL_SSL",
    )


def offsets(text: str) -> dict[str, int]:
    """By partition, in JSON. Raises ValueError."""
    try:
        return {str(int(one)): int(offset) for one, offset in json.loads(text).items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{text} is not a JSON object of numbers") from error


def work(run: Run) -> Result:
    """Raises ApplianceError, BadOptionError, RowsChangedError."""
    asked = run.asked
    source = asked.folder or f"{asked.from_topic} of {asked.kafka}"
    run.step(f"looking at {source}")
    records, order = _of_files(run) if asked.folder else _of_kafka(run)
    by = {f"_by{number}": one for number, one in enumerate(order)}
    rows = records.selectExpr(*asked.select, *(f"{one} AS {name}" for name, one in by.items()))
    if "value" not in rows.columns:
        raise BadOptionError(f"{source} has no column value, but {records.columns}: --select one")
    if asked.dry_run:
        count = rows.count()
        sentence = f"{count} records would be appended to {asked.to_topic}."
        return Result(sentence, {"records": count})
    append(run, rows, asked.to_topic, [*by], f"backfill.{_name(asked)}")
    return Result(f"{asked.to_topic} has the records of {source}.")


def _name(asked: argparse.Namespace) -> str:
    """The same for the same rows in the same order."""
    told = [asked.folder, asked.select, asked.order_by]
    if asked.kafka:
        told += [asked.kafka, asked.from_topic, asked.start, asked.until]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def _of_files(run: Run) -> tuple[DataFrame, list[str]]:
    """And the expressions that order it."""
    records = run.spark.read.parquet(run.asked.folder)
    return records, [*run.asked.order_by, "_metadata.file_path", "_metadata.row_index"]


def _of_kafka(run: Run) -> tuple[DataFrame, list[str]]:
    """A partition's records stay in their order even where their times go back: the largest time
    so far is what decides where a record is among those of other partitions."""
    asked = run.asked
    if not asked.from_topic or not asked.until or asked.order_by:
        raise BadOptionError("--kafka needs --from-topic and --until, and takes no --order-by")
    options = {
        "kafka.bootstrap.servers": asked.kafka,
        "kafka.isolation.level": "read_committed",
        "subscribe": asked.from_topic,
        "includeHeaders": "true",
        "startingOffsets": json.dumps(
            {asked.from_topic: {one: asked.start.get(one, _EARLIEST) for one in asked.until}}
        ),
        "endingOffsets": json.dumps({asked.from_topic: asked.until}),
    }
    if asked.kafka_config:
        for line in Path(asked.kafka_config).read_text(encoding="utf-8").splitlines():
            name, is_setting, value = line.partition("=")
            if is_setting and not name.startswith("#"):
                options[f"kafka.{name.strip()}"] = value.strip()
    records = run.spark.read.format("kafka").options(**options).load()
    so_far = Window.partitionBy("partition").orderBy("offset")
    records = records.withColumn("_time", sql.max("timestamp").over(so_far))
    return records, ["_time", "partition", "offset"]


JOB = Job("backfill", __doc__, add_arguments, work)

if __name__ == "__main__":
    sys.exit(JOB.main())

"""Every version of every record key, as a slowly changing dimension table (type 2).

    spark-submit key_history.py --url http://seb:51313 --token-file seb.key \\
        --topics customers --out dimensions/customers

One row for each record with a record key: topic, key, value, offset, valid_from (its timestamp),
valid_to (that of the next record of the key, null for the newest), is_current, is_deleted (a
tombstone). Writes the whole table anew.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql
from pyspark_seb import jobs


def arguments() -> argparse.ArgumentParser:
    parser = jobs.parser(__doc__)
    jobs.add_reading(parser)
    parser.add_argument("--out", required=True, help="the folder of the table")
    return parser


def history(records: DataFrame) -> DataFrame:
    """Versions in the order of their offsets: timestamps are the producers', and may go back."""
    of_key = Window.partitionBy("topic", "key").orderBy("offset")
    following = sql.lead("offset").over(of_key)
    return records.where(sql.col("key").isNotNull()).select(
        "topic",
        "key",
        "value",
        "offset",
        sql.col("timestamp").alias("valid_from"),
        sql.lead("timestamp").over(of_key).alias("valid_to"),
        following.isNull().alias("is_current"),
        sql.col("value").isNull().alias("is_deleted"),
    )


def run(spark: SparkSession, asked: argparse.Namespace) -> None:
    options = {**jobs.reading(asked), "includeHeaders": "false"}
    records = spark.read.format("seb").options(**options).load()
    history(records).write.partitionBy("topic").mode("overwrite").parquet(asked.out)


def main() -> int:
    asked = arguments().parse_args()
    run(jobs.session("key_history"), asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())

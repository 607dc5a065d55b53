"""The job: orders of one appliance meet payments of another, in a table and in a topic.

    python job.py spark://HOST:PORT FOLDER SHOP_URL SHOP_KEY_FILE BANK_URL BANK_KEY_FILE

It runs until it is ended, and continues where it stood. Each micro-batch has a number in the
checkpoint, and three things make it exact, however often a machine is lost while it runs:

- the checkpoint says which offsets of both topics the batch has, and what waits for its partner;
- the table's directory of the batch is named by that number, and is written anew as a whole;
- the receipts are those rows, in a fixed order, from a producer that has the batch's number.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

LATE = "10 minutes"  # an order and its payment are at most so far apart
PARTS = 2


def main(master: str, folder: Path, shop: dict[str, str], bank: dict[str, str]) -> None:
    builder = SparkSession.builder.master(master).appName("receipts")
    for name, value in {
        "spark.cores.max": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.python.authenticate.socketTimeout": "2m",  # a busy machine is no failure
        "spark.sql.adaptive.enabled": "false",  # a batch done again has the same partitions
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    def arriving(appliance: dict[str, str], topic: str) -> DataFrame:
        records = spark.readStream.format("seb").options(
            **appliance, topics=topic, group="receipts"
        )
        return records.load().select(
            sql.col("key").cast("string").alias(f"{topic}_key"),
            sql.col("value").cast("string").cast("long").alias(f"{topic}_cents"),
            sql.col("timestamp").alias(f"{topic}_at"),
        )

    orders = arriving(shop, "orders").withWatermark("orders_at", LATE)
    payments = arriving(bank, "payments").withWatermark("payments_at", LATE)
    near = f"payments_at between orders_at - interval {LATE} and orders_at + interval {LATE}"
    joined = orders.join(payments, sql.expr(f"orders_key = payments_key and {near}"))

    def write(batch: DataFrame, number: int) -> None:
        place = f"{folder}/table/batch={number}"
        batch.write.mode("overwrite").parquet(place)
        # What is produced is read from the table: the join is not computed a second time.
        paid = batch.sparkSession.read.schema(batch.schema).parquet(place)
        receipts = paid.select(
            sql.col("orders_key").alias("key"),
            sql.to_json(sql.struct("orders_cents", "payments_cents")).alias("value"),
        )
        fixed = receipts.repartition(PARTS, "key").sortWithinPartitions("key")
        sink = fixed.write.format("seb").mode("append").options(**shop, topic="receipts")
        sink.option("producerId", f"receipts-{number}").save()

    query = joined.writeStream.foreachBatch(write)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    master, folder, *appliances = sys.argv[1:]
    shop, bank = (
        {"url": url, "tokenFile": key_file}
        for url, key_file in zip(appliances[::2], appliances[1::2], strict=True)
    )
    main(master, Path(folder), shop, bank)

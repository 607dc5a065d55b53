"""A job for any Spark: copies a topic by a batch and by a stream; prints from where the
executors have the connector.

arguments: URL, API key file, topic, folder for the checkpoint, and one of
    register   the connector came with the job, and Spark does not know its name
    known      the connector is installed where Spark runs
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

url, token_file, topic, checkpoint, how = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if how == "register":
    from pyspark_seb import DefaultSource

    spark.dataSource.register(DefaultSource)

seb = {"url": url, "tokenFile": token_file}
records = spark.read.format("seb").options(**seb, topics=topic, minPartitions=4).load()
copied = records.select("key", "value").write.format("seb").mode("append")
copied.options(**seb, topic=f"{topic}.copied").save()

arriving = spark.readStream.format("seb").options(**seb, topics=topic, group=topic).load()
query = (
    arriving.select("key", "value")
    .writeStream.format("seb")
    .options(**seb, topic=f"{topic}.streamed", checkpointLocation=checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()


@sql.udf("string", useArrow=False)
def place(offset):
    """Where this process has the connector from."""
    import pyspark_seb

    return pyspark_seb.__file__


places = records.select(place("offset").alias("place")).distinct().collect()
print("DONE", json.dumps({"rows": records.count(), "places": [row.place for row in places]}))

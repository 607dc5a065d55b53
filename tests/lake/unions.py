"""Each record of a topic's table and log once, again and again. It runs in the environment of
readers.txt (what the client needs beside DuckDB comes from that of the tests), or of spark.txt:

    python unions.py '{"engine": "duckdb" or "spark", "topic": NAME, "url": URL, "token": KEY,
                       "token_file": PATH, "packages": FOLDER, "s3": {…} or null,
                       "by_catalog": bool, "select": [SQL, …], "times": COUNT, "snapshots": COUNT}'

It reads so many times at least, and so many snapshots. It prints for each a JSON list: the
snapshot, its next offset, the log end, and the rows of each statement.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from read import duckdb_with, spark_session  # beside this file

Asked = dict[str, Any]


def table_of(asked: Asked, catalog: str) -> str | None:
    return f"{catalog}.topics." + asked["topic"].replace(".", "_") if asked["by_catalog"] else None


def by_duckdb(asked: Asked) -> Callable[[], list[Any]]:
    sys.path.append(asked["packages"])
    from seb_appliance.client.tables import create_view

    connection = duckdb_with(asked, "iceberg")
    table = table_of(asked, "seb")
    if table is not None:
        connection.execute(
            f"ATTACH 'seb' AS seb (TYPE iceberg, ENDPOINT '{asked['url']}/iceberg', "
            f"TOKEN '{asked['token']}')"
        )
    address = {"url": asked["url"], "api_key": asked["token"]}

    def union() -> list[Any]:
        pinned = create_view(connection, asked["topic"], table=table, **address)
        return [*pinned, *(connection.execute(one).fetchall() for one in asked["select"])]

    return union


def by_spark(asked: Asked) -> Callable[[], list[Any]]:
    from pyspark_seb.client import Appliance
    from pyspark_seb.tables import pin, table_and_log

    spark = spark_session({**asked, "catalog": f"{asked['url']}/iceberg"})
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    options = {"url": asked["url"], "tokenFile": asked["token_file"]}

    def union() -> list[Any]:
        found = table_and_log(spark, asked["topic"], options, table=table_of(asked, "bearer"))
        found.createOrReplaceTempView("orders_eu")
        known = pin(Appliance(asked["url"], asked["token_file"]), asked["topic"])
        selected = [spark.sql(one.replace('"', "`")).collect() for one in asked["select"]]
        return [known.snapshot, known.next_offset, known.end, *map(list, selected)]

    return union


def main() -> None:
    asked = json.loads(sys.argv[1])
    union = {"duckdb": by_duckdb, "spark": by_spark}[asked["engine"]](asked)
    times, snapshots = 0, set()
    while times < asked["times"] or len(snapshots) < asked["snapshots"]:
        found = union()
        times += 1
        snapshots.add(found[0])
        print(json.dumps(found, default=repr), flush=True)


if __name__ == "__main__":
    main()

"""Views of a topic's table and log in DuckDB, one after the other. It runs in the environment of
readers.txt; what the client needs beside DuckDB comes from that of the tests:

    python unions.py '{"topic": NAME, "url": URL, "api_key": KEY, "packages": FOLDER, "catalog": bool,
                       "select": [SQL, …], "times": COUNT, "snapshots": COUNT}'

It makes so many views at least, of so many snapshots. It prints for each a JSON list: its snapshot, next offset and log end, and the rows of each
statement.
"""

from __future__ import annotations

import json
import sys

from read import duckdb_with  # beside this file

asked = json.loads(sys.argv[1])
sys.path.append(asked["packages"])

from seb_appliance.client.tables import create_view  # noqa: E402

connection = duckdb_with({"s3": asked["s3"]}, "iceberg")
table = None
if asked["catalog"]:
    connection.execute(
        f"ATTACH 'seb' AS seb (TYPE iceberg, ENDPOINT '{asked['url']}/iceberg', "
        f"TOKEN '{asked['api_key']}')"
    )
    table = "seb.topics." + asked["topic"].replace(".", "_")
times, snapshots = 0, set()
while times < asked["times"] or len(snapshots) < asked["snapshots"]:
    pinned = create_view(
        connection, asked["topic"], url=asked["url"], api_key=asked["api_key"], table=table
    )
    times += 1
    snapshots.add(pinned.snapshot)
    rows = [connection.execute(statement).fetchall() for statement in asked["select"]]
    print(json.dumps([*pinned, *rows], default=repr), flush=True)

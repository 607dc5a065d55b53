"""Read a table through the catalog, as its users do. It runs in the environment of readers.txt:
`catalog_clients.py CLIENT` with options as JSON on stdin. Prints as JSON the count and the sum of
the offsets, or the names of the tables."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

SUM = 'select count(*), sum("offset") from '


def attach(options: dict[str, Any]) -> Any:
    import duckdb

    connection = duckdb.connect()
    for name in ("avro", "httpfs", "iceberg"):
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert found is not None, name
        assert found.origin is not None, name
        (file,) = Path(found.origin).parent.rglob("*.duckdb_extension")
        connection.execute(f"INSTALL '{file}'")
        connection.execute(f"LOAD {name}")
    for statement in options.get("before", ()):
        connection.execute(statement)
    connection.execute(
        f"ATTACH 'seb' AS seb (TYPE iceberg, ENDPOINT '{options['uri']}', {options['options']})"
    )
    return connection


def duckdb_sum(options: dict[str, Any]) -> list[int]:
    return list(attach(options).execute(f"{SUM}seb.topics.{options['table']}").fetchone())


def duckdb_tables(options: dict[str, Any]) -> list[str]:
    rows = attach(options).execute("SHOW ALL TABLES").fetchall()
    return sorted(row[2] for row in rows if row[0] == "seb")


def duckdb_insert(options: dict[str, Any]) -> None:
    attach(options).execute(f"insert into seb.topics.{options['table']} values (1)")


def load(options: dict[str, Any]) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("seb", type="rest", uri=options["uri"], **options["options"])


def pyiceberg_sum(options: dict[str, Any]) -> list[int]:
    import pyarrow.compute as pc

    table = load(options).load_table(f"topics.{options['table']}")
    rows = table.scan(selected_fields=("offset",)).to_arrow()
    return [rows.num_rows, pc.sum(rows["offset"]).as_py()]


def pyiceberg_tables(options: dict[str, Any]) -> list[str]:
    catalog = load(options)
    return sorted(
        name
        for namespace in catalog.list_namespaces()
        for _, name in catalog.list_tables(namespace)
    )


def pyiceberg_drop(options: dict[str, Any]) -> None:
    load(options).drop_table(f"topics.{options['table']}")


def polars_sum(options: dict[str, Any]) -> list[int]:
    import polars as pl

    table = load(options).load_table(f"topics.{options['table']}")
    # Polars reads the data files itself, and takes nothing from the catalog.
    store = {name: text for name, text in table.io.properties.items() if name.startswith("s3.")}
    rows = pl.scan_iceberg(table, storage_options=store)
    offsets = rows.select(pl.len(), pl.col("offset").sum())
    return list(offsets.collect().row(0))


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](json.load(sys.stdin))))

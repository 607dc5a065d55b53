"""All rows of tables, as each reader finds them. It runs in the environment of readers.txt:

    python rows.py '[{"location": URI, "metadata": URI}, …]'

It prints a JSON list with an object for each table: by reader, [[offset, key, value], …] in the
order of offsets, or an error text.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from read import duckdb_with, path_of  # beside this file

NAMES = ["offset", "key", "value"]
SELECT = 'SELECT "offset", "key", "value" FROM'
Asked = dict[str, Any]


def by_duckdb(asked: Asked) -> Any:
    return duckdb_with(asked, "iceberg").execute(f"{SELECT} iceberg_scan('{asked['metadata']}')")


def by_duckdb_delta(asked: Asked) -> Any:
    return duckdb_with(asked, "delta").execute(f"{SELECT} delta_scan('{asked['location']}')")


def by_pyiceberg(asked: Asked) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(asked["metadata"]).scan(selected_fields=NAMES).to_arrow()


def by_polars(asked: Asked) -> Any:
    import polars as pl

    return pl.scan_iceberg(asked["metadata"]).select(NAMES).collect().to_arrow()


def by_polars_delta(asked: Asked) -> Any:
    import polars as pl

    return pl.scan_delta(path_of(asked["location"])).select(NAMES).collect().to_arrow()


def by_delta_rs(asked: Asked) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(path_of(asked["location"])).to_pyarrow_table(columns=NAMES)


READERS: dict[str, Callable[[Asked], Any]] = {
    "duckdb": by_duckdb,
    "duckdb-delta": by_duckdb_delta,
    "pyiceberg": by_pyiceberg,
    "polars": by_polars,
    "polars-delta": by_polars_delta,
    "delta-rs": by_delta_rs,
}


def rows_by(read: Callable[[Asked], Any], asked: Asked) -> Any:
    try:
        found = read(asked)
        if hasattr(found, "fetchall"):
            rows = found.fetchall()
        else:
            rows = list(zip(*(found[name].to_pylist() for name in NAMES), strict=True))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return sorted(rows, key=lambda row: row[0])


def main() -> None:
    tables = [{"s3": None, **one} for one in json.loads(sys.argv[1])]
    found = [{name: rows_by(read, one) for name, read in READERS.items()} for one in tables]
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # threads of some readers do not end


if __name__ == "__main__":
    main()

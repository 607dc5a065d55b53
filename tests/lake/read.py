"""What each reader finds in a lake table. It runs in the environment of readers.txt, or with
`"engine": "spark"` in that of spark.txt:

    python read.py '{"location": URI, "metadata": URI or null, "snapshot": ID or null,
                     "delta": bool, "catalog": URL or null, "token": TEXT, "oauth": TEXT or null,
                     "table": NAME, "s3": {…} or null}'

It prints a JSON object: by reader, [rows, distinct offsets, smallest, largest], or an error text.
`snapshot`: an older one. `s3`: endpoint, key, secret, region of the store. `cells`: Python that
sets up the catalog `seb`, in place of all readers. Without an argument, it answers each line of
its input, as Spark takes long to start.
"""

from __future__ import annotations

import contextlib
import json
import os
import site
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

FOUND = 'count(*), count(DISTINCT "offset"), min("offset"), max("offset")'
Asked = dict[str, Any]
JARS = Path(__file__).parents[2] / ".state" / "spark" / "jars"


def of_arrow(table: Any) -> list[Any]:
    offsets = table["offset"].to_pylist()
    return [len(offsets), len(set(offsets)), min(offsets, default=None), max(offsets, default=None)]


def duckdb_with(asked: Asked, *extensions: str) -> Any:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "httpfs", *extensions):
        pattern = f"duckdb_extension_{name}/**/*.duckdb_extension*"
        folders = map(Path, site.getsitepackages())
        (file,) = [found for folder in folders for found in folder.glob(pattern)]
        connection.execute(f"INSTALL '{file}'")
        connection.execute(f"LOAD {name}")
    if s3 := asked["s3"]:
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{s3['key']}', SECRET '{s3['secret']}', "
            f"REGION '{s3['region']}', ENDPOINT '{s3['endpoint'].partition('://')[2]}', "
            "URL_STYLE 'path', USE_SSL false)"
        )
    return connection


def path_of(uri: str) -> str:
    return uri.removeprefix("file://")


def pyiceberg_properties(asked: Asked) -> dict[str, str]:
    s3 = asked["s3"]
    if not s3:
        return {}
    return {
        "s3.endpoint": s3["endpoint"],
        "s3.access-key-id": s3["key"],
        "s3.secret-access-key": s3["secret"],
        "s3.region": s3["region"],
    }


def by_duckdb(asked: Asked) -> Any:
    connection = duckdb_with(asked, "iceberg")
    version = f", snapshot_from_id={asked['snapshot']}" if asked["snapshot"] else ""
    return connection.execute(
        f"SELECT {FOUND} FROM iceberg_scan('{asked['metadata']}'{version})"
    ).fetchone()


def by_duckdb_delta(asked: Asked) -> Any:
    connection = duckdb_with(asked, "delta")
    return connection.execute(f"SELECT {FOUND} FROM delta_scan('{asked['location']}')").fetchone()


def by_duckdb_catalog(asked: Asked) -> Any:
    connection = duckdb_with(asked, "iceberg")
    secret = asked.get("oauth") or f"TOKEN '{asked['token']}'"
    connection.execute(f"CREATE SECRET seb (TYPE iceberg, {secret})")
    connection.execute(
        f"ATTACH '' AS seb (TYPE iceberg, SECRET seb, ENDPOINT '{asked['catalog']}')"
    )
    return connection.execute(f'SELECT {FOUND} FROM seb.topics."{asked["table"]}"').fetchone()


def by_pyiceberg(asked: Asked) -> Any:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(asked["metadata"], pyiceberg_properties(asked))
    return of_arrow(table.scan(snapshot_id=asked["snapshot"]).to_arrow())


def by_pyiceberg_catalog(asked: Asked) -> Any:
    from pyiceberg.catalog.rest import RestCatalog

    properties = {"uri": asked["catalog"], **pyiceberg_properties(asked)}
    if asked.get("oauth"):
        properties |= {
            "credential": asked["token"],
            "oauth2-server-uri": f"{asked['catalog']}/v1/oauth/tokens",
        }
    else:
        properties["token"] = asked["token"]
    table = RestCatalog("seb", **properties).load_table(f"topics.{asked['table']}")
    return of_arrow(table.scan(snapshot_id=asked["snapshot"]).to_arrow())


def storage_options(asked: Asked) -> dict[str, str]:
    s3 = asked["s3"]
    if not s3:
        return {}
    return {
        "aws_endpoint_url": s3["endpoint"],
        "aws_access_key_id": s3["key"],
        "aws_secret_access_key": s3["secret"],
        "aws_region": s3["region"],
        "aws_allow_http": "true",
    }


def by_polars(asked: Asked) -> Any:
    import polars as pl

    options = pyiceberg_properties(asked) or None
    frame = pl.scan_iceberg(
        asked["metadata"], snapshot_id=asked["snapshot"], storage_options=options
    )
    return of_polars(frame.select("offset").collect()["offset"])


def of_polars(offsets: Any) -> list[Any]:
    return [len(offsets), offsets.n_unique(), offsets.min(), offsets.max()]


def by_polars_delta(asked: Asked) -> Any:
    import polars as pl

    frame = pl.scan_delta(path_of(asked["location"]), storage_options=storage_options(asked))
    return of_polars(frame.select("offset").collect()["offset"])


def by_delta_rs(asked: Asked) -> Any:
    from deltalake import DeltaTable

    version = None if asked["snapshot"] is None else asked["snapshot"] - 1
    table = DeltaTable(
        path_of(asked["location"]), version=version, storage_options=storage_options(asked)
    )
    return of_arrow(table.to_pyarrow_table(columns=["offset"]))


def by_daft(asked: Asked) -> Any:
    import daft
    from daft.io import IOConfig, S3Config
    from pyiceberg.table import StaticTable

    config = None
    if s3 := asked["s3"]:
        config = IOConfig(
            s3=S3Config(
                endpoint_url=s3["endpoint"],
                key_id=s3["key"],
                access_key=s3["secret"],
                region_name=s3["region"],
            )
        )
    table = StaticTable.from_metadata(asked["metadata"], pyiceberg_properties(asked))
    frame = daft.read_iceberg(table, snapshot_id=asked["snapshot"], io_config=config)
    return of_arrow(frame.select("offset").to_arrow())


def by_chdb(asked: Asked) -> Any:
    import chdb

    if s3 := asked["s3"]:
        bucket_and_path = asked["location"].removeprefix("s3://")
        source = (
            f"icebergS3('{s3['endpoint']}/{bucket_and_path}/', '{s3['key']}', '{s3['secret']}')"
        )
    else:
        folder, _, name = path_of(asked["location"]).rpartition("/")
        os.chdir(folder)  # it reads no files elsewhere
        source = f"icebergLocal('{name}')"
    found = chdb.query(f"SELECT {FOUND} FROM {source}", "JSONCompact")
    rows, *others = (int(value) for value in json.loads(str(found))["data"][0])
    return [rows, *others] if rows else [0, 0, None, None]  # it takes 0 for the smallest of none


def spark_session(asked: Asked) -> Any:
    """A session of its own in the one JVM: catalogs `bearer` and `oauth`, and the S3 server."""
    from pyspark.sql import SparkSession

    iceberg, delta = "org.apache.iceberg.spark", "io.delta.sql.DeltaSparkSessionExtension"
    options = {
        "spark.jars": ",".join(map(str, sorted(JARS.glob("*.jar")))),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": f"{iceberg}.extensions.IcebergSparkSessionExtensions,{delta}",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    session = SparkSession.builder.master("local[1]").config(map=options).getOrCreate().newSession()
    seb = {"": f"{iceberg}.SparkCatalog", ".type": "rest", ".uri": asked["catalog"]}
    if s3 := asked["s3"]:
        seb |= {".s3.access-key-id": s3["key"], ".s3.secret-access-key": s3["secret"]}
        hadoop = {
            "s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "s3.impl.disable.cache": "true",
            "s3a.endpoint": s3["endpoint"],
            "s3a.endpoint.region": s3["region"],
            "s3a.access.key": s3["key"],
            "s3a.secret.key": s3["secret"],
            "s3a.path.style.access": "true",
        }
        for name, value in hadoop.items():
            session.conf.set(f"fs.{name}", value)
    by_oauth = {
        ".credential": f"seb:{asked['token']}",
        ".oauth2-server-uri": f"{asked['catalog']}/v1/oauth/tokens",
    }
    for catalog, more in (("bearer", {".token": asked["token"]}), ("oauth", by_oauth)):
        for name, value in {**seb, **more}.items():
            session.conf.set(f"spark.sql.catalog.{catalog}{name}", value)
    for name, value in {"": f"{iceberg}.SparkCatalog", **asked.get("own", {})}.items():
        session.conf.set(f"spark.sql.catalog.own.{name}".rstrip("."), value)
    return session


def of_spark(frame: Any) -> Any:
    return frame.selectExpr(*FOUND.replace('"', "`").split(", ")).first()


def by_spark(asked: Asked) -> Any:
    reader = spark_session(asked).read.format("iceberg")
    if asked["snapshot"] is not None:
        reader = reader.option("versionAsOf", asked["snapshot"])
    return of_spark(reader.load(asked["location"]))


def by_spark_delta(asked: Asked) -> Any:
    reader = spark_session(asked).read.format("delta")
    if asked["snapshot"] is not None:
        reader = reader.option("versionAsOf", asked["snapshot"] - 1)
    return of_spark(reader.load(asked["location"]))


def by_spark_catalog(asked: Asked, catalog: str = "bearer") -> Any:
    version = "" if asked["snapshot"] is None else f" VERSION AS OF {asked['snapshot']}"
    table = f"{catalog}.topics.{asked['table']}"
    return of_spark(spark_session(asked).sql(f"SELECT * FROM {table}{version}"))


def by_spark_oauth(asked: Asked) -> Any:
    return by_spark_catalog(asked, "oauth")


def by_spark_cell(cell: str, asked: Asked) -> Any:
    spark = spark_session(asked)
    exec(cell, {"spark": spark})
    return of_spark(spark.table(f"seb.topics.{asked['table']}"))


ICEBERG = {
    "duckdb": by_duckdb,
    "pyiceberg": by_pyiceberg,
    "polars": by_polars,
    "daft": by_daft,
    "chdb": by_chdb,
}
DELTA = {"duckdb-delta": by_duckdb_delta, "polars-delta": by_polars_delta, "delta-rs": by_delta_rs}
CATALOG = {"duckdb-catalog": by_duckdb_catalog, "pyiceberg-catalog": by_pyiceberg_catalog}
SPARK = {
    "spark": by_spark,
    "spark-delta": by_spark_delta,
    "spark-catalog": by_spark_catalog,
    "spark-oauth": by_spark_oauth,
}
# These read an older snapshot, too.
OLDER = {"duckdb", "pyiceberg", "polars", "daft", "delta-rs", "pyiceberg-catalog", *SPARK}


def found_by_all(wanted: Asked) -> dict[str, Any]:
    asked: Asked = {
        "snapshot": None, "delta": False, "catalog": None, "s3": None, "metadata": None,
        "engine": "python", "cells": [],
        **wanted,
    }  # fmt: skip
    readers: dict[str, Callable[[Asked], Any]] = {}
    if asked["engine"] == "spark":
        readers |= {} if asked["cells"] else SPARK
    else:
        readers |= ICEBERG if asked["metadata"] else {}
        readers |= DELTA if asked["delta"] else {}
        readers |= CATALOG if asked["catalog"] else {}
    if asked["snapshot"] is not None:
        readers = {name: read for name, read in readers.items() if name in OLDER}
    for i, cell in enumerate(asked["cells"]):
        readers[f"cell-{i}"] = partial(by_spark_cell, cell)
    found = {}
    for name, read in readers.items():
        try:
            found[name] = list(read(asked))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {str(error)[:300]}"
    return found


def main() -> None:
    for asked in sys.argv[1:] or sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            found = found_by_all(json.loads(asked))
        print(json.dumps(found), flush=True)
    os._exit(0)  # threads of some of them do not end


if __name__ == "__main__":
    main()

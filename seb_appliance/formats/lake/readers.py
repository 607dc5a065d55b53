"""What to enter in an engine to read a table: for the command line, the admin page and the docs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from seb_appliance.formats.lake.tables import TOMBSTONE

KEY: Final = "API_KEY"  # stands for an API key with `consume` on the topic

_BY_CATALOG: Final = {
    "duckdb": """\
INSTALL iceberg; LOAD iceberg; INSTALL httpfs; LOAD httpfs;
ATTACH 'seb' AS seb (TYPE iceberg, ENDPOINT '{catalog}', TOKEN '{key}');
SELECT * FROM seb.topics."{name}" LIMIT 10;
-- without the catalog: SELECT * FROM iceberg_scan('{metadata}') LIMIT 10;""",
    "pyiceberg": """\
from pyiceberg.catalog.rest import RestCatalog
catalog = RestCatalog("seb", uri="{catalog}", token="{key}")
print(catalog.load_table("topics.{name}").scan(limit=10).to_arrow())""",
    "polars": """\
import polars as pl
print(pl.scan_iceberg("{metadata}").head(10).collect())""",
    "spark": """\
# pyspark --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0{s3_packages}
spark.conf.set("spark.sql.catalog.seb", "org.apache.iceberg.spark.SparkCatalog")
spark.conf.set("spark.sql.catalog.seb.type", "rest")
spark.conf.set("spark.sql.catalog.seb.uri", "{catalog}")
spark.conf.set("spark.sql.catalog.seb.token", "{key}")
spark.table("seb.topics.{name}").show(10)""",
    "trino": """\
# etc/catalog/seb.properties
connector.name=iceberg
iceberg.catalog.type=rest
iceberg.rest-catalog.uri={catalog}
iceberg.rest-catalog.security=OAUTH2
iceberg.rest-catalog.oauth2.token={key}
{trino_files}
# SELECT * FROM seb.topics."{name}" LIMIT 10""",
}
_DELTA: Final = {
    "duckdb": """\
INSTALL delta; LOAD delta;
SELECT * FROM delta_scan('{location}') LIMIT 10;""",
    "polars": """\
import polars as pl
print(pl.scan_delta("{location}").head(10).collect())""",
    "spark": """\
# pyspark --packages io.delta:delta-spark_4.1_2.13:4.4.0
spark.read.format("delta").load("{location}").show(10)""",
}
ENGINES: Final = tuple(_BY_CATALOG)
_NOT_YET: Final = "vN.metadata.json"  # N: the number of the commit
_S3_PACKAGES: Final = ",org.apache.iceberg:iceberg-aws-bundle:1.12.0"
_TRINO_FILES: Final = "fs.hadoop.enabled=true"
# Trino is told the address of the store and a key here, not by the catalog.
_TRINO_S3: Final = """\
fs.native-s3.enabled=true
s3.endpoint=ENDPOINT
s3.region=REGION
s3.path-style-access=true
s3.aws-access-key=KEY_ID
s3.aws-secret-key=SECRET"""

_NEWEST: Final = {
    "duckdb": """\
SELECT * EXCLUDE (seb_newest) FROM (
  SELECT *, row_number() OVER (PARTITION BY key, key_binary ORDER BY "offset" DESC) AS seb_newest
  FROM {table}) WHERE seb_newest = 1 AND (key IS NOT NULL OR key_binary IS NOT NULL){alive}""",
    "spark": """\
SELECT * EXCEPT (seb_newest) FROM (
  SELECT *, row_number() OVER (PARTITION BY key, key_binary ORDER BY `offset` DESC) AS seb_newest
  FROM {table}) WHERE seb_newest = 1 AND (key IS NOT NULL OR key_binary IS NOT NULL){alive}""",
    "trino": """\
SELECT * FROM (
  SELECT *, row_number() OVER (PARTITION BY key, key_binary ORDER BY "offset" DESC) AS seb_newest
  FROM {table}) WHERE seb_newest = 1 AND (key IS NOT NULL OR key_binary IS NOT NULL){alive}""",
}
KEYED: Final = tuple(_NEWEST)


def table_name(topic: str) -> str:
    """In the catalog and in SQL: lower case, without dots."""
    return topic.lower().replace(".", "_")


def first_cells(
    topic: str,
    appliance: str,
    location: str,
    formats: Sequence[str],
    metadata: str | None,
    key: str = KEY,
) -> dict[str, str]:
    """What to enter first, by engine. `appliance`: its URL. `metadata`: of Iceberg; None before
    the first commit."""
    texts = _BY_CATALOG if "iceberg" in formats else _DELTA
    is_s3 = location.startswith("s3://")
    return {
        engine: text.format(
            catalog=f"{appliance}/iceberg",
            host=urlsplit(appliance).netloc,
            name=table_name(topic),
            metadata=metadata or f"{location}/metadata/{_NOT_YET}",
            location=location,
            key=key,
            s3_packages=_S3_PACKAGES if is_s3 else "",
            trino_files=_TRINO_S3 if is_s3 else _TRINO_FILES,
        )
        for engine, text in texts.items()
    }


def newest_by_key(engine: str, table: str, *, has_value: bool) -> str:
    """A query for the newest row of each record key, without those whose newest is a tombstone.
    `has_value`: whether the value itself is a column."""
    alive = "(value IS NOT NULL OR value_binary IS NOT NULL)"
    if not has_value:
        alive = f"_error IS DISTINCT FROM '{TOMBSTONE}'"
    return _NEWEST[engine].format(table=table, alive=f"\n  AND {alive}")

"""DuckDB, PyIceberg and Polars read a table through the catalog, with an API key as Bearer and by
OAuth2, on a directory and on an S3 server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.servers.s3_server import S3Server

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".state" / "readers" / "bin" / "python"
CLIENTS = Path(__file__).with_name("catalog_clients.py")
RECORDS = 1_000
EXPECTED = [RECORDS, sum(range(RECORDS))]


@dataclass(frozen=True)
class Lake:
    """An appliance with the table `orders_eu`, and a key that may read that alone. `s3`: its store,
    None for a directory."""

    seb: RunningAppliance
    key: str
    s3: S3Server | None = None

    @property
    def uri(self) -> str:
        return f"{self.seb.base_url}/iceberg"

    @property
    def duckdb_secret(self) -> list[str]:
        """What a user tells DuckDB who has credentials for the bucket."""
        if self.s3 is None:
            return []
        pair = f"KEY_ID '{self.s3.access_key_id}', SECRET '{self.s3.secret_access_key}'"
        where = f"ENDPOINT '127.0.0.1:{self.s3.port}', URL_STYLE 'path', USE_SSL false"
        return [f"CREATE SECRET (TYPE s3, {pair}, {where}, REGION 'us-east-1')"]

    @property
    def own_pair(self) -> dict[str, str]:
        if self.s3 is None:
            return {}
        return {
            "s3.access-key-id": self.s3.access_key_id,
            "s3.secret-access-key": self.s3.secret_access_key,
        }


async def made(seb: RunningAppliance, s3: S3Server | None) -> Lake:
    for topic in ("orders.eu", "private"):
        await seb.client.put(f"/v1/topics/{topic}", json={"table": "iceberg"})
        records = {"records": [{"value": {"total": i}} for i in range(RECORDS)]}
        sent = await seb.client.post(f"/v1/topics/{topic}/records", json=records)
        assert sent.status_code == 201, sent.text
        async with asyncio.timeout(60):
            while True:
                shown = (await seb.client.get(f"/v1/tables/{topic}")).json()
                if shown.get("rows") == RECORDS and shown["metadata"]:
                    break
                await asyncio.sleep(0.05)
    grants = [{"operation": "consume", "topics": "orders.**"}]
    key = await seb.client.post("/v1/api-keys", json={"name": "reader", "grants": grants})
    return Lake(seb, key.json()["secret"], s3)


def s3_settings(server: S3Server) -> dict[str, Any]:
    bucket = server.new_bucket()
    return {
        "bucket": f"s3://{bucket.bucket}/{bucket.prefix}",
        "s3_endpoint": bucket.endpoint_url,
        "s3_region": "us-east-1",
        "s3_access_key_id": server.access_key_id,
        "s3_secret_access_key": server.secret_access_key,
        "s3_immediate_list": True,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["directory", "moto"])
async def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    server: S3Server | None = None
    settings: dict[str, Any] = {"bucket": f"file:{folder}/bucket"}
    if request.param == "moto":
        server = request.getfixturevalue("moto_server")
        settings = s3_settings(server)
    async with running_appliance(folder / "data", **settings) as seb:
        yield await made(seb, server)


async def ask(client: str, **options: Any) -> tuple[Any, str]:
    """What the client found; and what it printed if it failed, without which it must not."""
    if not PYTHON.exists():
        pytest.skip("no readers of tables are installed (sh tests/lake/install.sh)")
    process = await asyncio.create_subprocess_exec(
        PYTHON,
        CLIENTS,
        client,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTHON")},
    )
    output, errors = await process.communicate(
        json.dumps({"table": "orders_eu", **options}).encode()
    )
    if process.returncode:
        return None, errors.decode()
    return json.loads(output), ""


async def found(client: str, **options: Any) -> Any:
    answer, errors = await ask(client, **options)
    assert not errors, errors
    return answer


def duckdb_options(lake: Lake, way: str) -> dict[str, Any]:
    given = f"TOKEN '{lake.key}'"
    if way == "oauth2":
        given = (
            f"CLIENT_ID 'seb', CLIENT_SECRET '{lake.key}', "
            f"OAUTH2_SERVER_URI '{lake.uri}/v1/oauth/tokens'"
        )
    return {"uri": lake.uri, "options": given, "before": lake.duckdb_secret}


def pyiceberg_options(lake: Lake, way: str) -> dict[str, Any]:
    given = {"token": lake.key} if way == "bearer" else {"credential": f"seb:{lake.key}"}
    return {"uri": lake.uri, "options": {**given, **lake.own_pair}}


@pytest.mark.parametrize("way", ["bearer", "oauth2"])
async def test_duckdb_reads_with_credentials_of_its_own(lake: Lake, way: str) -> None:
    assert await found("duckdb_sum", **duckdb_options(lake, way)) == EXPECTED


@pytest.mark.parametrize("way", ["bearer", "oauth2"])
async def test_pyiceberg_reads_with_credentials_of_its_own(lake: Lake, way: str) -> None:
    assert await found("pyiceberg_sum", **pyiceberg_options(lake, way)) == EXPECTED


async def test_polars_reads_what_pyiceberg_loads(lake: Lake) -> None:
    assert await found("polars_sum", **pyiceberg_options(lake, "bearer")) == EXPECTED


async def test_a_client_lists_what_its_key_may_read(lake: Lake) -> None:
    assert await found("duckdb_tables", **duckdb_options(lake, "bearer")) == ["orders_eu"]
    assert await found("pyiceberg_tables", **pyiceberg_options(lake, "oauth2")) == ["orders_eu"]


async def test_a_client_is_told_why_it_reads_nothing(lake: Lake) -> None:
    absent = {"table": "private"}
    _, errors = await ask("pyiceberg_sum", **pyiceberg_options(lake, "bearer") | absent)
    assert "NoSuchTableError" in errors
    _, errors = await ask("duckdb_sum", **duckdb_options(lake, "bearer") | absent)
    assert "private" in errors
    wrong = Lake(lake.seb, lake.key[:-6] + "aaaaaa", lake.s3)
    for way in ("bearer", "oauth2"):
        _, errors = await ask("pyiceberg_sum", **pyiceberg_options(wrong, way))
        assert "API key" in errors, errors
        _, errors = await ask("duckdb_sum", **duckdb_options(wrong, way))
        assert "401" in errors or "API key" in errors, errors


async def test_a_client_cannot_write(lake: Lake) -> None:
    _, errors = await ask("pyiceberg_drop", **pyiceberg_options(lake, "bearer"))
    assert "does not support endpoint" in errors  # by itself: the config does not list it
    _, errors = await ask("duckdb_insert", **duckdb_options(lake, "bearer"))
    assert errors
    assert await found("duckdb_sum", **duckdb_options(lake, "bearer")) == EXPECTED


async def test_readers_need_no_credentials_where_the_operator_hands_out_a_pair(
    moto_server: S3Server, tmp_path: Path
) -> None:
    pair = f"{moto_server.access_key_id}:{moto_server.secret_access_key}"
    settings = {**s3_settings(moto_server), "table_reader_key": pair}
    async with running_appliance(tmp_path / "data", **settings) as seb:
        lake = await made(seb, None)
        for client, options in (
            ("duckdb_sum", duckdb_options(lake, "bearer")),
            ("pyiceberg_sum", pyiceberg_options(lake, "oauth2")),
            ("polars_sum", pyiceberg_options(lake, "bearer")),
        ):
            assert await found(client, **options) == EXPECTED, client

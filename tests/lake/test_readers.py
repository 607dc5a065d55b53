"""Real readers read the tables of a real appliance: the newest state and an older one."""

from __future__ import annotations

import asyncio
import contextlib
import re
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import httpx2
import pytest

from seb_appliance.formats.lake.readers import KEY, first_cells
from seb_appliance.storage.stores.s3_options import S3Options
from tests.lake.engines import Engine, running
from tests.support.process import Bucket, SebProcess, seb_process
from tests.support.servers.moto import running_moto

pytestmark = pytest.mark.slow

TOPIC = "orders.eu"
TABLES = Path(__file__).parents[2] / "docs" / "TABLES.md"
NEIGHBOURS = ("spark", "trino")
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Store:
    bucket: Bucket
    s3: dict[str, str] | None  # for readers


@pytest.fixture(
    scope="module",
    params=["python", *(pytest.param(name, marks=pytest.mark.neighbours) for name in NEIGHBOURS)],
)
def readers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    with running(request.param, tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "directory":
        yield Store(Bucket.directory(tmp_path / "bucket"), None)
        return
    with running_moto(tmp_path) as server:
        endpoint = f"http://127.0.0.1:{server.port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="testtest",
        )
        bucket = f"lake-{server.port}"  # Delta keeps by name what it has read
        client.create_bucket(Bucket=bucket)
        options = S3Options(
            bucket=bucket, prefix="seb", access_key_id="test", secret_access_key="testtest"
        )
        s3 = {"endpoint": endpoint, "key": "test", "secret": "testtest", "region": "us-east-1"}
        yield Store(Bucket.s3(options, server.port), s3)


class Lake:
    """A topic of an appliance, and its table."""

    def __init__(self, seb: SebProcess, client: httpx2.AsyncClient, store: Store) -> None:
        self.seb = seb
        self.client = client
        self.store = store

    async def change(self, **settings: Any) -> None:
        answer = await self.client.patch(f"/v1/topics/{TOPIC}", json=settings)
        assert answer.status_code == 200, answer.text

    async def send(self, *values: Any) -> None:
        records = {"records": [{"key": f"k{i % 3}", "value": one} for i, one in enumerate(values)]}
        answer = await self.client.post(f"/v1/topics/{TOPIC}/records", json=records)
        assert answer.status_code == 201, answer.text

    async def settled(self, **wanted: Any) -> dict[str, Any]:
        """The table once it has every record, and these members."""
        until_s = time.monotonic() + PATIENCE_S
        table: dict[str, Any] = {}
        while time.monotonic() < until_s:
            answer = await self.client.get(f"/v1/tables/{TOPIC}")
            table = answer.json()
            is_done = answer.status_code == 200 and table["lag_records"] == 0
            printed = is_done and (table["published"] or {}).get("snapshot") == table["commits"]
            if printed and all(table[name] == value for name, value in wanted.items()):
                return table
            await asyncio.sleep(0.1)
        raise AssertionError(table)

    def read(self, readers: Engine, table: dict[str, Any], **more: Any) -> dict[str, Any]:
        asked = {
            "location": table["location"],
            "metadata": table["metadata"],
            "delta": "delta" in table["formats"],
            "table": TOPIC.replace(".", "_"),
            "s3": self.store.s3,
            "catalog": f"http://127.0.0.1:{self.seb.port}/iceberg",
            "token": self.seb.admin_key,
            **more,
        }
        return readers.read(asked)


def by_all(readers: Engine, *found: int | None) -> dict[str, list[int | None]]:
    return {name: list(found) for name in readers.readers}


@contextlib.asynccontextmanager
async def lake(store: Store, folder: Path, **settings: Any) -> AsyncIterator[Lake]:
    async with seb_process(store.bucket, folder / "data") as seb:
        headers = {"authorization": f"Bearer {seb.admin_key}"}
        url = f"http://127.0.0.1:{seb.port}"
        async with httpx2.AsyncClient(base_url=url, headers=headers, verify=False) as client:
            asked = {"table": "iceberg,delta", "table_lag_ms": 1_000, **settings}
            made = await client.put(f"/v1/topics/{TOPIC}", json=asked)
            assert made.status_code == 201, made.text
            yield Lake(seb, client, store)


async def test_every_reader_sees_each_record_once(readers: Engine, store: Store, tmp_path: Path):
    async with lake(store, tmp_path) as here:
        await here.send(*({"id": i, "total": i / 2} for i in range(1_000)))
        first = await here.settled()
        await here.send(*({"id": i} for i in range(500)))
        second = await here.settled()
        found = here.read(readers, second)
        assert found == by_all(readers, 1_500, 1_500, 0, 1_499)
        older = here.read(readers, second, snapshot=first["commits"])
        assert set(map(tuple, older.values())) == {(1_000, 1_000, 0, 999)}, older


async def test_a_table_that_evolved_and_was_merged_is_read_by_all(
    readers: Engine, store: Store, tmp_path: Path
):
    async with lake(store, tmp_path) as here:
        await here.send({"id": 1}, {"id": 2})
        await here.settled()
        await here.change(table_columns="id:long, name:string, _rest")
        for i in range(9):
            await here.send({"id": i, "name": "n", "more": [1]}, "no object")
            await here.settled()
        table = await here.settled(files=3)  # the raw one, eight merged ones, and the last
        assert table["bad_rows"] == 9
        assert here.read(readers, table) == by_all(readers, 20, 20, 0, 19)


async def test_rows_that_retention_removed_are_gone_for_all(
    readers: Engine, store: Store, tmp_path: Path
):
    async with lake(store, tmp_path) as here:
        await here.send("a", "b")
        await here.settled()
        await here.change(table_retention_ms=2_000)
        table = await here.settled(rows=0)
        assert here.read(readers, table) == by_all(readers, 0, 0, None, None)


def cells(engine: str, here: Lake, table: dict[str, Any]) -> list[str]:
    """The first cells of the documentation and of `seb tables attach`, for this appliance."""
    seb = f"http://127.0.0.1:{here.seb.port}"
    location, formats = table["location"], table["formats"]
    printed = first_cells(TOPIC, seb, location, formats, table["metadata"])[engine]
    found = [printed.replace(KEY, here.seb.admin_key)]
    if s3 := here.store.s3:
        names = {"ENDPOINT": "endpoint", "REGION": "region", "KEY_ID": "key", "SECRET": "secret"}
        for name, value in names.items():
            found = [cell.replace(f"={name}", f"={s3[value]}") for cell in found]
        cell = rf"(?is)\*\*{engine}\*\*.*?\n\n((?:    [^\n]*\n)+)"
        shown = re.search(cell, TABLES.read_text())
        assert shown is not None
        given = {
            "https://seb.example": seb,
            "https://s3.example": s3["endpoint"],
            "seb_…": here.seb.admin_key,
            '"k"': f'"{s3["key"]}"',
            '"s"': f'"{s3["secret"]}"',
            "aws-access-key=k": f"aws-access-key={s3['key']}",
            "aws-secret-key=s": f"aws-secret-key={s3['secret']}",
        }
        text = textwrap.dedent(shown[1])
        for name, value in given.items():
            text = text.replace(name, value)
        found.append(text)
    return found


@pytest.mark.neighbours
@pytest.mark.parametrize("readers", NEIGHBOURS, indirect=True)
async def test_the_first_cells_that_are_shown_read_the_table(
    readers: Engine, store: Store, tmp_path: Path
):
    bucket = store.bucket
    if s3 := store.s3:  # the printed cell of Spark has no key
        pair = f"{s3['key']}:{s3['secret']}"
        bucket = replace(bucket, environment={**bucket.environment, "SEB_TABLE_READER_KEY": pair})
    async with lake(replace(store, bucket=bucket), tmp_path) as here:
        await here.send("a", "b")
        table = await here.settled()
        texts = cells(readers.name, here, table)
        found = here.read(readers, table, cells=texts)
        assert found == {f"cell-{i}": [2, 2, 0, 1] for i in range(len(texts))}

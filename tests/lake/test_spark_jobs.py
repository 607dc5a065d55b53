"""Jobs that keep somebody's own Iceberg table up with a topic, however often and at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lake.test_readers import TOPIC, Lake, Store, lake
from tests.support.process import Bucket

pytestmark = pytest.mark.neighbours

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".state" / "spark" / "bin" / "python"


class Jobs:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, *step: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(step).encode() + b"\n")
        async for line in self._process.stdout:
            if line.startswith(b"answer "):
                return json.loads(line.removeprefix(b"answer "))
        raise AssertionError(step)

    async def run(self, write: str, *at: int) -> tuple[list[int], int]:
        return await self.do("begin", write, *at), await self.do("finish", write)


@asynccontextmanager
async def jobs(here: Lake, folder: Path) -> AsyncIterator[Jobs]:
    if not PYTHON.exists():
        pytest.skip("Spark is not installed (sh tests/lake/install-spark.sh)")
    asked = {
        "url": f"http://127.0.0.1:{here.seb.port}",
        "token_file": str(here.seb.data / "admin.key"),
        "topic": TOPIC,
        "warehouse": str(folder / "warehouse"),
    }
    with (folder / "spark.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            PYTHON,
            ROOT / "tests" / "lake" / "spark_jobs.py",
            json.dumps(asked),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "spark")]),
                "PYSPARK_PYTHON": str(PYTHON),
            },
        )
    try:
        yield Jobs(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def keeping(write: str, folder: Path) -> AsyncIterator[tuple[Lake, Jobs]]:
    """An empty table for what `write` does."""
    store = Store(Bucket.directory(folder / "bucket"), None)
    async with lake(store, folder, table="none") as here, jobs(here, folder) as spark:
        await spark.do("create", write)
        yield here, spark


async def test_merged_rows_are_the_newest_of_each_key_and_tombstones_delete(tmp_path: Path) -> None:
    async with keeping("upsert", tmp_path) as (here, spark):
        rows = ("rows", "upsert", ["key", "total", "offset"])
        await here.send({"total": 1}, {"total": 2}, {"total": 3}, {"total": 4})  # k0, k1, k2, k0
        assert await spark.run("upsert") == ([0, 4], 0)
        assert await spark.do(*rows) == [["k0", 4.0, 3], ["k1", 2.0, 1], ["k2", 3.0, 2]]
        assert await spark.run("upsert") == ([4, 4], 0)

        await here.send({"total": 5}, None)
        assert await spark.do("begin", "upsert") == [4, 6]
        await here.send(None)
        assert await spark.run("upsert") == ([4, 7], 0)
        assert await spark.do(*rows) == [["k2", 3.0, 2]]
        # The first one is late: it would bring k0 back.
        assert await spark.do("finish", "upsert") == 3
        assert await spark.do(*rows) == [["k2", 3.0, 2]]

        await here.send({"total": 6}, {"total": 7})
        assert await spark.do("two", "upsert") == [0, 3]
        assert await spark.do(*rows) == [["k0", 6.0, 7], ["k1", 7.0, 8], ["k2", 3.0, 2]]
        assert await spark.do("refs", "upsert") == ["main"]


async def test_each_record_is_a_row_once_however_often_it_is_written(tmp_path: Path) -> None:
    async with keeping("to_table", tmp_path) as (here, spark):

        async def check(end: int) -> None:
            rows = await spark.do("rows", "to_table", ["topic_id", "offset", "value"])
            assert rows == [[1, i, f"v{i}"] for i in range(end)]

        await here.send(*(f"v{i}" for i in range(1_000)))
        assert await spark.do("begin", "to_table") == [0, 1_000]
        assert await spark.run("to_table") == ([0, 1_000], 0)
        assert await spark.do("finish", "to_table") == 3
        await check(1_000)
        assert await spark.run("to_table") == ([1_000, 1_000], 0)

        await here.send(*(f"v{i}" for i in range(1_000, 2_000)))
        assert await spark.do("two", "to_table") == [0, 3]
        await check(2_000)
        assert await spark.run("to_table", 1_000) == ([1_000, 2_000], 0)
        await check(2_000)
        assert await spark.run("to_table", 0) == ([0, 2_000], 0)
        await check(2_000)

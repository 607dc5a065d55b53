"""Jobs that keep somebody's own table up with a topic, however often and at once."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from seb_appliance.ops.host import restoring
from tests.lake.engines import running
from tests.lake.test_readers import TOPIC, Lake, Store, lake
from tests.support.process import Bucket, seb_process
from tests.unit.test_restoring import of, quiet

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
        raise EOFError(step)

    async def is_killed(self, write: str, before: int | None) -> bool:
        with suppress(EOFError):
            assert await self.do("killed", write, before) == 0
            return False
        return True

    async def run(self, write: str, *at: int) -> tuple[list[int], int]:
        return await self.do("begin", write, *at), await self.do("finish", write)


@asynccontextmanager
async def jobs(here: Lake, folder: Path, kind: str) -> AsyncIterator[Jobs]:
    if not PYTHON.exists():
        pytest.skip("Spark is not installed (sh tests/lake/install-spark.sh)")
    asked = {
        "url": f"http://127.0.0.1:{here.seb.port}",
        "token_file": str(here.seb.data / "admin.key"),
        "topic": TOPIC,
        "warehouse": str(folder / "warehouse"),
        "format": kind,
    }
    with (folder / "spark.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            PYTHON,
            ROOT / "tests" / "lake" / "spark_jobs.py",
            json.dumps(asked),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # a step kills its process group
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
async def keeping(
    write: str, folder: Path, kind: str = "iceberg"
) -> AsyncIterator[tuple[Lake, Jobs]]:
    """An empty table for what `write` does."""
    store = Store(Bucket.directory(folder / "bucket"), None)
    async with lake(store, folder, table="none") as here, jobs(here, folder, kind) as spark:
        assert await spark.do("create", write) is None
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


def seen_by_others(folder: Path, write: str) -> dict[str, Any]:
    """A Delta table by DuckDB, Polars and delta-rs: rows, offsets, smallest, largest."""
    location = (folder / "warehouse" / write).as_uri()
    asked = {"location": location, "metadata": None, "delta": True, "s3": None, "table": write}
    with running("python", folder) as readers:
        found = readers.read(asked)
    assert len(found) == 3
    return found


async def test_a_delta_table_has_each_record_once_however_late_a_run_is(tmp_path: Path) -> None:
    async with keeping("to_table", tmp_path, "delta") as (here, spark):

        async def check(end: int) -> None:
            rows = await spark.do("rows", "to_table", ["topic_id", "offset", "value"])
            assert rows == [[1, i, f"v{i}"] for i in range(end)]

        await here.send(*(f"v{i}" for i in range(100)))
        assert await spark.do("begin", "to_table") == [0, 100]
        await here.send(*(f"v{i}" for i in range(100, 200)))
        assert await spark.run("to_table") == ([0, 200], 0)
        # The first one is late: Delta has seen its transaction's version.
        assert await spark.do("finish", "to_table") == 0
        await check(200)
        assert await spark.run("to_table") == ([200, 200], 0)
        assert await spark.run("to_table", 50) == ([50, 200], 0)
        await check(200)
        await here.send(*(f"v{i}" for i in range(200, 300)))
        assert await spark.do("two", "to_table") == [0, 3]
        await check(300)
        found = seen_by_others(tmp_path, "to_table")
        assert set(map(tuple, found.values())) == {(300, 300, 0, 299)}, found


async def test_merged_delta_rows_are_the_newest_however_late_a_run_is(tmp_path: Path) -> None:
    async with keeping("upsert", tmp_path, "delta") as (here, spark):
        rows = ("rows", "upsert", ["key", "total", "offset"])
        await here.send({"total": 1}, {"total": 2}, {"total": 3}, {"total": 4})  # k0, k1, k2, k0
        assert await spark.run("upsert") == ([0, 4], 0)
        assert await spark.do(*rows) == [["k0", 4.0, 3], ["k1", 2.0, 1], ["k2", 3.0, 2]]
        await here.send({"total": 5}, None)
        assert await spark.do("begin", "upsert") == [4, 6]
        await here.send(None)
        assert await spark.run("upsert") == ([4, 7], 0)
        # The first one is late: it would bring k0 back.
        assert await spark.do("finish", "upsert") == 0
        assert await spark.do(*rows) == [["k2", 3.0, 2]]
        await here.send(None)  # of a record key without a row
        assert await spark.run("upsert") == ([7, 8], 0)
        assert await spark.run("upsert") == ([8, 8], 0)
        found = seen_by_others(tmp_path, "upsert")
        assert set(map(tuple, found.values())) == {(1, 1, 2, 2)}, found


@pytest.mark.parametrize("write", ["to_table", "upsert"])
async def test_a_delta_table_without_history_is_kept_up_from_the_log_start(
    tmp_path: Path, write: str
) -> None:
    """What Delta has seen is left out, also in small steps, and the table never goes back."""
    async with keeping(write, tmp_path, "delta") as (here, spark):
        await here.send({"total": 1}, {"total": 2}, {"total": 3}, {"total": 4})
        await here.send(None)
        assert await spark.run(write) == ([0, 5], 0)
        before = await spark.do("rows", write, ["offset", "value"])
        assert await spark.do("forget", write) is None
        await spark.do("given", "--max-records", "2")
        await here.send({"total": 5})
        for begin in (0, 2, 4):
            assert await spark.do("rows", write, ["offset", "value"]) == before
            assert await spark.run(write) == ([begin, begin + 2], 0)
        added = [5, '{"total":5}']
        assert await spark.do("rows", write, ["offset", "value"]) == [*before, added]


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
async def test_a_table_is_left_alone_if_the_log_has_other_records_now(
    tmp_path: Path, kind: str
) -> None:
    """After a restore as of an earlier time, also once the log is longer than what was read."""
    rows = ("rows", "to_table", ["value"])
    async with keeping("to_table", tmp_path, kind) as (here, spark):
        await here.send("v0", "v1")
        seq = (await here.client.get("/v1/status")).json()["journal"]["seq"]
        assert await spark.run("to_table") == ([0, 2], 0)
        await here.send("lost")
        assert await spark.run("to_table") == ([2, 3], 0)
        await restoring.clone(of(tmp_path), of(tmp_path, "kept"), seq, quiet)
        kept = Bucket.directory(tmp_path / "kept")
        async with seb_process(kept, tmp_path / "other", "--take-over") as seb:
            await spark.do("given", "--url", f"http://127.0.0.1:{seb.port}")
            here.client.base_url = f"http://127.0.0.1:{seb.port}"
            await here.send("v2", "v3")
            for at in ([], [2]):
                answer = await spark.do("begin", "to_table", *at)
                assert "restored as of an earlier time" in answer
            assert await spark.do(*rows) == [["lost"], ["v0"], ["v1"]]
            if kind == "iceberg":
                assert await spark.do("roll_back", "to_table") is None
                assert await spark.run("to_table") == ([2, 4], 0)
                assert await spark.do(*rows) == [["v0"], ["v1"], ["v2"], ["v3"]]


# So many steps has a run until its commit is made.
STEPS = {
    ("iceberg", "to_table"): 3,
    ("iceberg", "upsert"): 7,
    ("delta", "to_table"): 3,
    ("delta", "upsert"): 3,
}


@pytest.mark.parametrize(("kind", "write"), STEPS)
async def test_a_job_that_is_killed_before_each_step_leaves_an_exact_table(
    tmp_path: Path, kind: str, write: str
) -> None:
    """It is run again and again, and each time one step further, until nothing is left to do; and
    it is killed when a data file appears. The table is the old one or the new one."""
    sent: list[tuple[str, dict[str, int] | None]] = []
    store = Store(Bucket.directory(tmp_path / "bucket"), None)

    async def send(here: Lake, second: dict[str, int] | None) -> None:
        values = [{"total": len(sent)}, second]  # of k0 and k1
        await here.send(*values)
        sent.extend(zip(("k0", "k1"), values, strict=True))

    def wanted(end: int) -> list[list[int]]:
        newest = {key: offset for offset, (key, _) in enumerate(sent[:end])}
        alive = [offset for offset in newest.values() if sent[offset][1] is not None]
        return [[one] for one in (range(end) if write == "to_table" else sorted(alive))]

    async def check(spark: Jobs) -> None:
        found = await spark.do("rows", write, ["offset"])
        assert found in (wanted(len(sent) - 2), wanted(len(sent)))

    async with lake(store, tmp_path, table="none") as here:
        async with jobs(here, tmp_path, kind) as spark:
            assert await spark.do("create", write) is None
            await send(here, {"total": 1})
            assert await spark.run(write) == ([0, 2], 0)
        await send(here, None)
        for number in itertools.count():
            async with jobs(here, tmp_path, kind) as spark:
                await check(spark)
                if not await spark.is_killed(write, number):
                    assert await spark.do("rows", write, ["offset"]) == wanted(4)
                    await send(here, {"total": 2})
                    assert await spark.is_killed(write, None)
                    break
        assert number == STEPS[kind, write]
        async with jobs(here, tmp_path, kind) as spark:
            await check(spark)
            assert (await spark.run(write))[1] == 0
            assert await spark.do("rows", write, ["offset"]) == wanted(6)

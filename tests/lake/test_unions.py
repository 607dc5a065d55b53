"""A view of a topic's table and log has each record once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from seb_appliance.formats.lake.readers import newest_by_key
from tests.lake.test_readers import Lake, Store, lake
from tests.support.process import Bucket

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".state" / "readers" / "bin" / "python"
UNIONS = int(os.environ.get("SEB_TEST_UNIONS", "8"))
SNAPSHOTS = max(2, UNIONS // 4)
EXACT = (
    'SELECT count(*), count(DISTINCT "offset"), min("offset"), max("offset"), '
    "count(*) FILTER (WHERE value = 'v' || \"offset\") FROM orders_eu"
)
TEXTS = ", ".join(
    f'CAST("{name}" AS STRING)'
    for name in ("offset", "timestamp", "key", "headers", "id", "at", "_rest", "_raw", "_error")
)
ALL = f'SELECT {TEXTS} FROM orders_eu ORDER BY "orders_eu"."offset"'


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.neighbours)])
def engine(request: pytest.FixtureRequest) -> str:
    if not _python(request.param).exists():
        pytest.skip("no readers of tables are installed (sh tests/lake/install.sh)")
    return str(request.param)


def _python(engine: str) -> Path:
    return ROOT / ".state" / {"duckdb": "readers", "spark": "spark"}[engine] / "bin" / "python"


async def unions(engine: str, here: Lake, *select: str, **more: Any) -> list[Any]:
    """Of each: snapshot, next offset, log end, and the rows of each statement."""
    asked = {
        "engine": engine,
        "topic": "orders.eu",
        "url": f"http://127.0.0.1:{here.seb.port}",
        "token": here.seb.admin_key,
        "token_file": str(here.seb.data / "admin.key"),
        "packages": sysconfig.get_path("purelib"),
        "s3": here.store.s3,
        "by_catalog": False,
        "select": select,
        "times": 1,
        "snapshots": 1,
        **more,
    }
    python, script = _python(engine), ROOT / "tests" / "lake" / "unions.py"
    process = await asyncio.create_subprocess_exec(
        python,
        script,
        json.dumps(asked),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "spark")]),
            "PYSPARK_PYTHON": str(python),
        },
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return [json.loads(line) for line in output.splitlines()]


def params(*hand_run: tuple[str, str]) -> list[Any]:
    """Of engine and way; but for one of them, for a run by hand: they take long."""
    return [
        ("duckdb", "path"),
        *(pytest.param(*one, marks=pytest.mark.neighbours) for one in hand_run),
    ]


@pytest.mark.parametrize(
    ("engine", "way"),
    params(("duckdb", "catalog"), ("spark", "path"), ("spark", "catalog"), ("spark", "delta")),
    indirect=["engine"],
)
async def test_each_record_is_there_once_while_table_and_log_change(
    engine: str, way: str, tmp_path: Path
) -> None:
    """Commits, merged files, old snapshots that go, and retention of the log."""
    bucket = Bucket(f"file:{tmp_path}/bucket", {"SEB_GARBAGE_GRACE": "5s"})
    # By path, DuckDB's view lives garbage_grace longer than its snapshot. Spark reads the log when
    # rows are asked for: records that are gone by then are an error.
    settings: dict[str, Any] = {"retention_ms": 300_000}
    if engine == "duckdb":
        settings = {"table_snapshots": 1 if way == "path" else 20, "retention_ms": 2_000}
    settings["table"] = "delta" if way == "delta" else "iceberg"
    async with lake(Store(bucket, None), tmp_path, **settings) as here:
        await here.send("v0")
        await here.settled()  # the table is made a moment after its topic
        wanted = {"times": UNIONS, "snapshots": SNAPSHOTS, "by_catalog": way == "catalog"}
        reading = asyncio.create_task(unions(engine, here, EXACT, **wanted))
        sent = 1
        while not reading.done():
            await here.send(*(f"v{sent + i}" for i in range(20)))
            sent += 20
        found = await reading
    assert len(found) >= UNIONS
    for *_, [row] in found:
        assert row == [row[0], row[0], 0, row[0] - 1, row[0]]
    assert any(next_offset < row[0] for _, next_offset, _, [row] in found)


async def test_records_of_the_log_are_rows_as_the_table_will_have_them(
    engine: str, tmp_path: Path
) -> None:
    store = Store(Bucket.directory(tmp_path / "bucket"), None)
    values = [
        {"id": 1, "x": [2]},
        {"id": "no number"},
        "text",
        None,
        {"at": "2026-11-21T10:00:00Z"},
    ]
    async with lake(store, tmp_path, table_columns="id:long, at:timestamp, _rest") as here:
        await here.send(*values)
        await here.settled()
        await here.client.post("/v1/tables/orders.eu/pause")
        await here.send(*values)
        newest = newest_by_key(engine, "orders_eu", has_value=False)
        [[_, first, end, rows, alive]] = await unions(
            engine, here, ALL, f'SELECT "offset" FROM ({newest}) ORDER BY "offset"'
        )
        assert (first, end, len(rows)) == (5, 10, 10)
        assert alive == [[7], [9]]  # the newest record of the first key is a tombstone
        await here.client.post("/v1/tables/orders.eu/resume")
        await here.settled()
        [[_, first, end, as_in_table]] = await unions(engine, here, ALL)
        assert (first, end) == (10, 10)
        assert rows == as_in_table

"""A view of a topic's table and log has each record once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.lake.test_readers import Lake, Store, lake
from tests.support.process import Bucket

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".state" / "readers" / "bin" / "python"
UNIONS = int(os.environ.get("SEB_TEST_UNIONS", "8"))
SNAPSHOTS = max(3, UNIONS // 4)
EXACT = (
    'SELECT count(*), count(DISTINCT "offset"), min("offset"), max("offset"), '
    "count(*) FILTER (value = 'v' || \"offset\") FROM orders_eu"
)
ALL = 'SELECT COLUMNS(*)::VARCHAR FROM orders_eu ORDER BY "offset"::BIGINT'


async def unions(
    here: Lake, *select: str, times: int = 1, snapshots: int = 1, catalog: bool = False
) -> list[Any]:
    """Of each view: snapshot, next offset, log end, and the rows of each statement."""
    if not PYTHON.exists():
        pytest.skip("no readers of tables are installed (sh tests/lake/install.sh)")
    asked = {
        "topic": "orders.eu",
        "url": f"http://127.0.0.1:{here.seb.port}",
        "api_key": here.seb.admin_key,
        "packages": sysconfig.get_path("purelib"),
        "s3": here.store.s3,
        "catalog": catalog,
        "select": select,
        "times": times,
        "snapshots": snapshots,
    }
    process = await asyncio.create_subprocess_exec(
        PYTHON,
        ROOT / "tests" / "lake" / "unions.py",
        json.dumps(asked),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("catalog", [False, True], ids=["path", "catalog"])
async def test_each_view_has_each_record_once_while_table_and_log_change(
    catalog: bool, tmp_path: Path
) -> None:
    """Commits, merged files, old snapshots that go, and retention of the log."""
    bucket = Bucket(f"file:{tmp_path}/bucket", {"SEB_GARBAGE_GRACE": "5s"})
    # By the catalog, a view lives as long as its snapshot; by path, garbage_grace longer.
    settings = {"table_lag_ms": 1_000, "table_snapshots": 10 if catalog else 1}
    settings |= {"retention_ms": 2_000}
    async with lake(Store(bucket, None), tmp_path, **settings) as here:
        await here.send("v0")
        await here.settled()
        wanted = {"times": UNIONS, "snapshots": SNAPSHOTS, "catalog": catalog}
        reading = asyncio.create_task(unions(here, EXACT, **wanted))
        sent = 1
        while not reading.done():
            await here.send(*(f"v{sent + i}" for i in range(20)))
            sent += 20
        found = await reading
    assert len(found) >= UNIONS
    for _, _, end, [row] in found:
        assert row == [end, end, 0, end - 1, end]
    assert any(next_offset < end for _, next_offset, end, _ in found)


async def test_records_of_the_log_are_rows_as_the_table_will_have_them(tmp_path: Path) -> None:
    store = Store(Bucket.directory(tmp_path / "bucket"), None)
    values = [{"id": 1, "x": [2]}, {"id": "no number"}, "text", None, {"at": "2026-11-21T10:00:00Z"}]
    async with lake(store, tmp_path, table_columns="id:long, at:timestamp, _rest") as here:
        await here.send(*values)
        await here.settled()
        await here.client.post("/v1/tables/orders.eu/pause")
        await here.send(*values)
        [[_, first, end, rows]] = await unions(here, ALL)
        assert (first, end, len(rows)) == (5, 10, 10)
        await here.client.post("/v1/tables/orders.eu/resume")
        await here.settled()
        [[_, first, end, as_in_table]] = await unions(here, ALL)
        assert (first, end) == (10, 10)
        assert rows == as_in_table

"""Small files are merged in little memory, however much their rows grow when they are read."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from seb_appliance import setting_sources
from seb_appliance.broker.lake.jobs import PrintJob, WriteJob
from seb_appliance.errors import CorruptObjectError, StoreUncertainError
from seb_appliance.formats.lake.columns import columns_of
from seb_appliance.lake.table_formats import FORMATS
from seb_appliance.ops.jobs.lake.process import ChildTableWriter
from tests.support.lake import SET, Story
from tests.unit.lake.samples import Record, batch_of

MIB = 1 << 20


def test_rows_of_large_values_that_compress_well_are_merged_a_row_group_at_a_time() -> None:
    columns = columns_of("", [])
    bodies, files = [], []
    for base in (0, 100):
        writer = FORMATS.writer(columns, 0, 64 * MIB)
        for offset in range(base, base + 100):
            writer.add(batch_of([Record(offset, bytes(MIB))]), 0, 1_000)
        body, made = writer.finish()
        bodies.append(body)
        files.append(made)
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    try:
        body, made = FORMATS.merged(bodies, columns, files)
    finally:
        pa.set_memory_pool(usual)
    assert pq.read_table(pa.BufferReader(body))["offset"].to_pylist() == list(range(200))
    assert made.records == 200
    assert counted.max_memory() < 150 * MIB


def tables_of(folder: Path) -> ChildTableWriter:
    flags = {"data": str(folder / "data"), "bucket": f"file:{folder / 'bucket'}"}
    return ChildTableWriter(setting_sources.load(flags=flags, environment={}), "A")


@pytest.mark.asyncio
async def test_a_data_file_that_is_made_to_need_any_memory_fails_its_merge_alone(tmp_path) -> None:
    """Rows of 2 GB in 20 KB; the next job of the process is done."""
    story, place = Story(), tmp_path / "bucket" / SET.location / "data"
    place.mkdir(parents=True)
    columns = story.table.head.schemas[-1]
    writer = FORMATS.writer(columns, 0, 64 * MIB)
    writer.add(batch_of([Record(offset, b"x") for offset in range(2_000)]), 0, 2_000)
    sound, made = writer.finish()
    rows = pq.read_table(pa.BufferReader(sound))
    large = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000), pa.array([b"x" * 10**6]))
    rows = rows.set_column(rows.schema.get_field_index("value"), "value", large)
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, compression="zstd", store_schema=False)
    poisoned = bytes(out.getvalue())
    assert len(poisoned) < 50_000
    first = replace(made, name="data/a.parquet", length=len(poisoned))
    second = replace(first, name="data/b.parquet", first_offset=2_000, last_offset=3_999)
    story.commit(first, second)
    job = WriteJob(
        head=story.table.head.copy(),
        op="replace",
        name=bytes(8),
        file_bytes=64 * MIB,
        oldest=0,
        merged=(first.name, second.name),
        removed=(first.name, second.name),
        touched=tuple(story.table.files.values()),
    )
    tables = tables_of(tmp_path)
    try:
        for name in ("a", "b"):
            (place / f"{name}.parquet").write_bytes(poisoned)
        with pytest.raises(CorruptObjectError, match="more memory"):
            await tables.write(job)
        assert tables.rss_bytes < 1_500 * MIB
        for name in ("a", "b"):
            (place / f"{name}.parquet").write_bytes(sound)
        written = await tables.write(job)
        assert [one.records for one in written.commit.added] == [4_000]
    finally:
        await tables.close()


@pytest.mark.asyncio
async def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path, monkeypatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    tables, job = tables_of(tmp_path), PrintJob(Story().table.head.copy(), ())
    await tables.print(job)
    (killed,) = scratch.iterdir()
    (killed / "rows.parquet").write_bytes(b"rows")
    os.kill(tables._process.pid, signal.SIGKILL)
    with contextlib.suppress(StoreUncertainError):  # if it is not known to be gone yet
        await tables.print(job)
    await tables.print(job)
    (other,) = scratch.iterdir()
    assert other != killed
    await tables.close()
    assert list(scratch.iterdir()) == []

"""Small files are merged in little memory, however much their rows grow when they are read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from seb_appliance.formats.lake.columns import columns_of
from seb_appliance.lake.table_formats import FORMATS
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

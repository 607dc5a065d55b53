"""Records for tests of lake tables, and files that are written of them and read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from seb_appliance.formats import batch
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.lake.columns import columns_of
from seb_appliance.formats.lake.tables import TableFile
from seb_appliance.lake.parquet import ParquetWriter

NOW_US = 1_790_000_000_000_000


@dataclass
class Record:
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: dict[str, bytes] | None = None
    timestamp_us: int = NOW_US


def values(*items: bytes | None) -> list[Record]:
    return [Record(offset, item) for offset, item in enumerate(items)]


def batch_of(records: Sequence[Record], zstd_level: int | None = None) -> Batch:
    """As it is stored, with its offsets."""
    offsets = [one.offset for one in records]
    has_holes = offsets != list(range(offsets[0], offsets[0] + len(offsets)))
    keys = [one.key for one in records]
    headers = [msgspec.msgpack.encode(one.headers) if one.headers else b"" for one in records]
    columns = Columns(
        int64s(one.timestamp_us for one in records),
        BinaryColumn.of([one.value for one in records]),
        BinaryColumn.of(keys) if any(key is not None for key in keys) else None,
        BinaryColumn.of(headers) if any(headers) else None,
        int64s(offsets) if has_holes else None,
    )
    body = batch.encode(
        columns,
        base_offset=offsets[0],
        created_us=NOW_US,
        last_offset=offsets[-1],
        zstd_level=zstd_level,
    )
    return batch.decode(body)


@dataclass
class Written:
    file: TableFile
    rows: list[dict[str, Any]]
    footer: Any
    schema: pa.Schema


def written(
    folder: Path,
    text: str,
    *batches: Sequence[Record],
    begin: int = 0,
    end: int = 2**62,
    zstd_level: int | None = None,
) -> Written:
    """The records from begin to end, exclusive, in a file with these declared columns."""
    path = folder / "rows.parquet"
    writer = ParquetWriter(columns_of(text, []), 3, 64 << 20, path)
    for records in batches:
        writer.add(batch_of(records, zstd_level), begin, end)
    file = writer.finish(begin, end - 1, 5)
    table = pq.read_table(path)
    return Written(file, table.to_pylist(), pq.read_metadata(path), pq.read_schema(path))

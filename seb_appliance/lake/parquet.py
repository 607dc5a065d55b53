"""A data file of a lake table: rows in, a Parquet file and its row in the journal out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seb_appliance.formats.batch import Batch
from seb_appliance.formats.lake.tables import (
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    Column,
    ColumnStats,
    ColumnType,
    TableFile,
)
from seb_appliance.lake.rows import RowMaker
from seb_appliance.lake.types import single_value

ROW_GROUP_ROWS: Final = 100_000
_ROW_GROUP_BYTES: Final = 32 << 20  # before compression; the rows of a group wait in memory
_ZSTD_LEVEL: Final = 3
STATS_BYTES_MAX: Final = 2_048  # per file, in the journal
_BOUND_CHARACTERS: Final = 16
_HIGHEST: Final = 0x10FFFF
# Readers look for rows by these; bounds of whole values help nobody and are long.
_BOUNDED: Final = {"long", "double", "string", "boolean", "timestamp"}


def _is_bounded(column: Column) -> bool:
    return column.type in _BOUNDED and (column.path != () or column in (OFFSET, TIMESTAMP, KEY))


class ParquetWriter:
    """Writes one file at `path`, which the caller removes. It takes rows until `is_full`, which
    says that the file has about `file_bytes`."""

    def __init__(
        self, columns: Sequence[Column], schema_number: int, file_bytes: int, path: Path
    ) -> None:
        self._columns = columns
        self._schema_number = schema_number
        self._file_bytes = file_bytes
        self._maker = RowMaker(columns)
        self._group_bytes = min(_ROW_GROUP_BYTES, 2 * file_bytes)
        self._sink = pa.OSFile(str(path), "wb")
        self._path = path
        self._writer = _opened(self._sink, self._maker.schema, columns)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._taken_bytes = 0
        self._nulls = [0] * len(columns)
        self._times: list[int] = []
        self.records = 0
        self.bad = 0

    def add(
        self,
        batch: Batch,
        begin: int,
        end: int,
        note_bad: Callable[[pa.RecordBatch], None] = lambda _: None,
    ) -> None:
        """The batch's records with begin <= offset < end. `note_bad` is called with rows of which
        some could not be read."""
        for rows, bad in self._maker.rows(batch, begin, end):
            self.bad += bad
            if bad:
                note_bad(rows)
            self.add_rows(rows)
        # Rows that wait keep the whole batch in memory.
        if batch.header.inflated_bytes >= self._group_bytes // 2:
            self._write_group()

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Rows that have the columns of this file already."""
        self.records += rows.num_rows
        for place, column in enumerate(rows.columns):
            self._nulls[place] += column.null_count
        times = pc.min_max(rows.column(TIMESTAMP.name).cast(pa.int64()))
        self._times += (times["min"].as_py(), times["max"].as_py())
        while rows.num_rows:
            part = rows.slice(0, ROW_GROUP_ROWS - self._waiting_rows)
            rows = rows.slice(part.num_rows)
            self._waiting.append(part)
            self._waiting_rows += part.num_rows
            self._waiting_bytes += part.nbytes
            if self._waiting_rows == ROW_GROUP_ROWS or self._waiting_bytes >= self._group_bytes:
                self._write_group()

    @property
    def is_full(self) -> bool:
        if not self._taken_bytes:
            return False
        written: int = self._sink.tell()
        return written + self._waiting_bytes * written / self._taken_bytes >= self._file_bytes

    def finish(self, first_offset: int, last_offset: int, random64: int) -> TableFile:
        """Close the file, which answers for all offsets from first to last, inclusive. It has rows.
        The random number is in its name."""
        assert self.records, "a file has rows"
        self._write_group()
        self._writer.close()
        self._sink.close()
        return TableFile(
            name=f"data/{first_offset}-{last_offset}-{random64:016x}.parquet",
            length=self._path.stat().st_size,
            records=self.records,
            bad=self.bad,
            first_offset=first_offset,
            last_offset=last_offset,
            smallest_us=min(self._times),
            largest_us=max(self._times),
            schema=self._schema_number,
            stats=self._stats(),
        )

    def _write_group(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._maker.schema)
        self._waiting = []
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        del table
        pa.default_memory_pool().release_unused()
        self._taken_bytes += self._waiting_bytes
        self._waiting_rows = self._waiting_bytes = 0

    def _stats(self) -> tuple[ColumnStats, ...]:
        """Columns come in their order; the last ones go without, if there are too many."""
        footer = pq.read_metadata(self._path)
        leaves = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
        found: list[ColumnStats] = []
        left = STATS_BYTES_MAX
        for place, column in enumerate(self._columns):
            nulls = self._nulls[place]
            whole = ColumnStats(column.field_id, nulls)
            if _is_bounded(column):
                lower, upper = _bounds(footer, leaves[column.name], column.type)
                whole = ColumnStats(column.field_id, nulls, lower, upper)
            for stats in (whole, ColumnStats(column.field_id, nulls)):
                length = len(msgspec.msgpack.encode(stats))
                if length <= left:
                    left -= length
                    found.append(stats)
                    break
        return tuple(found)


def _opened(sink: Any, schema: pa.Schema, columns: Sequence[Column]) -> pq.ParquetWriter:
    bounded = [column.name for column in columns if _is_bounded(column)]
    # Whole values and offsets hardly repeat: to look for repetitions costs time.
    repeating = [one.name for one in columns if _is_bounded(one) and one not in (OFFSET, TIMESTAMP)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=[*repeating, f"{HEADERS.name}.key_value.key", "_error"],
        write_statistics=bounded,
        write_page_index=True,
        store_schema=False,
    )


def _bounds(footer: Any, leaf: int, kind: ColumnType) -> tuple[bytes | None, bytes | None]:
    """Of all rows of a file; None if there is no row with a value, or the bound is not known."""
    smallest, largest = [], []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(leaf)
        stats = chunk.statistics
        if stats is not None and stats.has_null_count and stats.null_count == chunk.num_values:
            continue
        if stats is None or not stats.has_min_max:
            return None, None
        is_time = kind == "timestamp"
        smallest.append(stats.min_raw if is_time else stats.min)
        largest.append(stats.max_raw if is_time else stats.max)
    if not smallest:
        return None, None
    lower, upper = min(smallest), max(largest)
    if isinstance(lower, str):
        lower, upper = lower[:_BOUND_CHARACTERS], rounded_up(upper)
    return single_value(kind, lower), None if upper is None else single_value(kind, upper)


def rounded_up(text: str) -> str | None:
    """A short text that is not below this one, in the order of UTF-8; None if there is none."""
    if len(text) <= _BOUND_CHARACTERS:
        return text
    short = text[:_BOUND_CHARACTERS]
    while short:
        point = ord(short[-1]) + 1
        if 0xD800 <= point < 0xE000:  # no characters
            point = 0xE000
        if point <= _HIGHEST:
            return short[:-1] + chr(point)
        short = short[:-1]
    return None

"""What a table is made of: Parquet files, and the metadata of Iceberg and Delta."""

from __future__ import annotations

import contextlib
import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from seb_appliance import limits
from seb_appliance.broker.lake.jobs import PrintedObject, PrintJob, TableFormats
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.lake.tables import ERROR, OFFSET, RAW, Column, TableFile
from seb_appliance.lake import delta, iceberg
from seb_appliance.lake.parquet import ParquetWriter

_BAD_ROWS_KEPT: Final = 10
_BAD_BYTES_KEPT: Final = 1_000  # of each


def _return_freed_memory() -> None:
    """To the kernel: about 70 MiB, after a file of 64 MiB."""
    with contextlib.suppress(AttributeError, OSError):  # musl and macOS have no such call
        ctypes.CDLL(None).malloc_trim(0)


class FileWriter:
    """A `RowWriter` of one Parquet file, which lies on the local disk until it is finished."""

    def __init__(self, columns: tuple[Column, ...], schema: int, file_bytes: int) -> None:
        self._file = tempfile.NamedTemporaryFile(suffix=".parquet")  # noqa: SIM115 - see `finish`
        self._rows = ParquetWriter(columns, schema, file_bytes, Path(self._file.name))
        self._created_us = 0
        self.bad_rows: list[tuple[int, str, bytes]] = []

    @property
    def records(self) -> int:
        return self._rows.records

    @property
    def is_full(self) -> bool:
        return self._rows.is_full

    def add(self, batch: Batch, begin: int, end: int) -> None:
        self._created_us = max(self._created_us, batch.header.created_us)
        self._rows.add(batch, begin, end, self._note_bad)

    def _note_bad(self, rows: pa.RecordBatch) -> None:
        """Some of the rows that could not be read as the columns say."""
        if len(self.bad_rows) >= _BAD_ROWS_KEPT:
            return
        bad = rows.filter(pc.is_valid(rows.column(RAW.name))).slice(0, _BAD_ROWS_KEPT)
        found = bad.select([OFFSET.name, ERROR.name, RAW.name]).to_pylist()
        self.bad_rows += [
            (one[OFFSET.name], one[ERROR.name], one[RAW.name][:_BAD_BYTES_KEPT]) for one in found
        ]

    def add_rows(self, rows: pa.RecordBatch) -> None:
        self._rows.add_rows(rows)

    def finish(self) -> tuple[bytes, TableFile]:
        with self._file:
            made = self._rows.finish(0, 0, 0)
            del self._rows
            _return_freed_memory()  # before the whole file is in memory
            body = Path(self._file.name).read_bytes()
        return body, replace(made, name="", created_us=self._created_us)


def _merged(
    bodies: Sequence[bytes], columns: tuple[Column, ...], files: Sequence[TableFile]
) -> tuple[bytes, TableFile]:
    total = sum(map(len, bodies))
    writer = FileWriter(columns, files[0].schema, 2 * total)
    inflated = 0
    for body in bodies:
        file = pq.ParquetFile(pa.BufferReader(body))
        # Rows of several groups at once could be of any length.
        for group in range(file.num_row_groups):
            for rows in file.read_row_group(group).to_batches():
                inflated += rows.nbytes
                if inflated > limits.TABLE_MERGED_INFLATED_BYTES:
                    raise CorruptObjectError("their rows are too many bytes, decompressed")
                writer.add_rows(rows)
    merged, made = writer.finish()
    return merged, replace(
        made,
        bad=sum(one.bad for one in files),
        first_offset=files[0].first_offset,
        last_offset=files[-1].last_offset,
        created_us=max(one.created_us for one in files),
        as_of=min(one.as_of for one in files),
    )


def _objects(job: PrintJob) -> list[PrintedObject]:
    formats = job.head.definition.formats
    objects = iceberg.printed(job.head, job.listed) if "iceberg" in formats else []
    if "delta" in formats:
        living = job.living if delta.needs_living(job.head) else None
        # Iceberg's hint is last: it is what a start looks at.
        objects[-1:-1] = delta.printed(job.head, job.listed, living)
    return objects


FORMATS: Final = TableFormats(FileWriter, _merged, iceberg.manifest, _objects)

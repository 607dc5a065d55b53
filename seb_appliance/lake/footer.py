"""What a Parquet file says of itself, compared with its row in the journal."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seb_appliance.formats.lake.tables import OFFSET, TableFile

_MAGIC: Final = b"PAR1"
# From LookupError on: there is no such column or row, or it has another type.
_UNREADABLE: Final = (
    pa.ArrowException, MemoryError, OSError, LookupError, OverflowError, TypeError, ValueError
)  # fmt: skip
TAIL_BYTES: Final = 8  # the length of the footer, and the magic bytes


def footer_bytes(tail: bytes) -> int:
    """How long the end of the file is that holds its footer; 0 if this is no end of such a file."""
    if len(tail) < TAIL_BYTES or tail[-4:] != _MAGIC:
        return 0
    return int.from_bytes(tail[-TAIL_BYTES:-4], "little") + TAIL_BYTES


def footer_fault(end: bytes, file: TableFile) -> str:
    """What is wrong with the end of a file that holds its footer; "" if nothing is."""
    try:
        footer = pq.read_metadata(pa.BufferReader(end))
        if footer.num_rows != file.records:
            return f"it has {footer.num_rows} rows, not {file.records}"
        groups = [footer.row_group(i).column(0) for i in range(footer.num_row_groups)]
        if any(one.path_in_schema != OFFSET.name or one.statistics is None for one in groups):
            return "its first column is not the offset"
        return _bounds_fault(groups[0].statistics.min, groups[-1].statistics.max, file)
    except _UNREADABLE as error:
        return f"its footer cannot be read: {str(error)[:100]}"


def rows_fault(body: bytes, file: TableFile) -> str:
    """What is wrong with the rows of a whole file; "" if nothing is."""
    try:
        whole = pq.ParquetFile(pa.BufferReader(body))
        if whole.metadata.num_rows != file.records:
            return f"it has {whole.metadata.num_rows} rows, not {file.records}"
        rows = [whole.metadata.row_group(i).num_rows for i in range(whole.num_row_groups)]
        if (
            min(rows, default=0) < 0 or sum(rows) != file.records
        ):  # Arrow takes memory for each of them
            return f"its row groups have {sum(rows)} rows, not {file.records}"
        # Rows of several groups at once could be of any length.
        groups = map(whole.read_row_group, range(whole.num_row_groups))
        chunks = [part for group in groups for part in group.column(OFFSET.name).chunks]
        offsets = pa.chunked_array(chunks).combine_chunks()
        if len(offsets) != file.records:
            return f"it has {len(offsets)} rows, not {file.records}"
        if not pc.all(pc.less(offsets[:-1], offsets[1:]), min_count=0).as_py():
            return "its offsets do not ascend"
        return _bounds_fault(offsets[0].as_py(), offsets[-1].as_py(), file)
    except _UNREADABLE as error:
        return f"its rows cannot be read: {str(error)[:100]}"


def _bounds_fault(lower: int, upper: int, file: TableFile) -> str:
    if lower < file.first_offset or upper > file.last_offset:
        wanted = f"{file.first_offset} to {file.last_offset}"
        return f"it has offsets {lower} to {upper}, and answers for {wanted}"
    return ""

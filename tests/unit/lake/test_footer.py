"""What is wrong with a Parquet file, compared with its row in the journal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seb_appliance.formats.lake.tables import TableFile
from seb_appliance.lake.footer import footer_fault, rows_fault


def parquet(columns: dict[str, Any]) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out)
    return bytes(out.getvalue())


def file_of(body: bytes) -> TableFile:
    return TableFile("a", len(body), 3, 0, 5, 9, 0, 0, 1)


@pytest.mark.parametrize(
    "columns",
    [
        {"other": [5, 7, 9]},
        {"offset": [None, None, None]},
        {"offset": [b"5", b"7", b"9"]},
        {"offset": [[5], [7], [9]]},
        {"offset": [5, 7]},
        {"offset": [5, 9, 7]},
        {"offset": [4, 7, 9]},
    ],
)
def test_a_file_with_other_columns_or_rows_is_damage(columns: dict[str, Any]) -> None:
    body = parquet(columns)
    assert rows_fault(body, file_of(body))
    is_order = columns == {"offset": [5, 9, 7]}  # a footer does not tell it
    assert footer_fault(body, file_of(body)) or is_order


def test_a_sound_file_is_none() -> None:
    body = parquet({"offset": [5, 7, 9]})
    assert (rows_fault(body, file_of(body)), footer_fault(body, file_of(body))) == ("", "")

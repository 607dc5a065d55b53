"""What is wrong with a Parquet file, compared with its row in the journal."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seb_appliance.formats.lake.tables import TableFile
from seb_appliance.lake.footer import footer_fault, rows_fault
from seb_appliance.ops.checks.lake import Apart, LakeCheck

ROWS = 2_000

# For which Arrow 26 ends its process: a histogram of levels has one count too many.
_FATAL = base64.b64decode(
    "FQQZPDUAGAZzY2hlbWEVBAAVBCVlGAZvZmZzZXQAFQwlAhgFdmFsdWUlAEwcAAAAFgYZHBksJgAcFQQZNQAGEBkY"
    "Bm9mZnNldBUCFgYW3gEW4AEmUiYIHBgICQAAAAAAAAAYCAUAAAAAAAAAFgAoCAkAAAAAAAAAGAgFAAAAAAAAABER"
    "ABksFQQVABUCABUAFRAVAgA8KQYZJgAGAAAAJgAcFQwZNQAGEBkYBXZhbHVlFQIWBhZ8FoQBJpwCJugBHDYCKAFj"
    "GAFhEREAGSwVBBUAFQIAFQAVEBUCADwWBBkGGSYCBAAAABbaAhYGJggW5AIAGRwYDEFSUk9XOnNjaGVtYRj4AS8v"
    "Ly8vN0FBQUFBUUFBQUFBQUFLQUF3QUJnQUZBQWdBQ2dBQUFBQUJCQUFNQUFBQUNBQUlBQUFBQkFBSUFBQUFCQUFB"
    "QUFJQUFBQkVBQUFBQkFBQUFOVC8vLzhBQUFFRkVBQUFBQndBQUFBRUFBQUFBQUFBQUFVQUFBQjJZV3gxWlFBQUFB"
    "UUFCQUFFQUFBQUVBQVVBQWdBQmdBSEFBd0FBQUFRQUJBQUFBQUFBQUVDRUFBQUFDQUFBQUFFQUFBQUFBQUFBQVlB"
    "QUFCdlptWnpaWFFBQUFnQURBQUlBQWNBQ0FBQUFBQUFBQUZBQUFBQUFBQUFBQT09ABggcGFycXVldC1jcHAtYXJy"
    "b3cgdmVyc2lvbiAyNi4wLjEZLBwAABwAAAAqAgAAUEFSMQ=="
)


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
        {"offset": pa.array([5, 7, 2**62], pa.duration("s"))},
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


def test_row_groups_that_claim_other_rows_than_the_file_are_not_read() -> None:
    """For one that claims 47,885,252,221 rows, Arrow took 16 GB and a minute and a half."""
    body = parquet({"offset": [5, 7, 9]})
    rows = body.rindex(b"\x16\x06")  # 3 in a footer, the last of which is that of the row group
    claims = body[:rows] + b"\x16\x08" + body[rows + 2 :]
    assert rows_fault(claims, file_of(claims)) == "its row groups have 4 rows, not 3"


async def test_a_footer_that_ends_its_reader_is_damage() -> None:
    async def get_range(key: str, begin: int, count: int) -> SimpleNamespace:
        return SimpleNamespace(data=_FATAL[begin : begin + count])

    check = LakeCheck(SimpleNamespace(get_range=get_range), SimpleNamespace())
    head = SimpleNamespace(key_of=str, definition=SimpleNamespace(name="t"))
    found = await check._of_footer(head, SimpleNamespace(file=file_of(_FATAL)))
    assert found is not None
    assert (found.code, found.detail) == (
        "table_file_damaged",
        "it ends the process that reads it",
    )
    sound = parquet({"offset": [5, 7, 9]})
    assert await check._apart.run(rows_fault, sound, file_of(sound)) == ""
    check._apart.close()


async def test_rows_that_need_any_memory_are_damage() -> None:
    """A file of 20 KB whose every row is the same megabyte."""
    rows = {
        "offset": range(ROWS),
        "value": pa.DictionaryArray.from_arrays(pa.array([0] * ROWS), pa.array(["x" * 10**6])),
    }
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(rows), out, compression="zstd", store_schema=False)
    body = bytes(out.getvalue())
    assert len(body) < 50_000
    apart = Apart()
    try:
        said = await apart.run(rows_fault, body, TableFile("a", len(body), ROWS, *range(6)))
    finally:
        apart.close()
    assert "cannot be read" in said

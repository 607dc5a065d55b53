"""The query for the newest row of each record key, as the page and the command show it."""

from __future__ import annotations

import pytest

duckdb = pytest.importorskip("duckdb")

import pyarrow as pa  # noqa: E402

from seb_appliance.formats.lake.columns import columns_of  # noqa: E402
from seb_appliance.formats.lake.readers import newest_by_key  # noqa: E402
from seb_appliance.lake.rows import RowMaker  # noqa: E402
from tests.unit.lake.samples import Record, batch_of  # noqa: E402

RECORDS = [
    Record(0, b'{"n": 1}', b"a"),
    Record(1, b'{"n": 2}', b"\xff"),
    Record(2, b'{"n": 3}'),  # no record key
    Record(3, None, b"a"),  # a tombstone
    Record(4, b"no JSON", b"\xff"),
    Record(5, None, b"b"),
    Record(6, b'{"n": null}', b"b"),
    Record(7, b"\xff", b"c"),
]


@pytest.mark.parametrize("declared", ["", "n:long", "n:long, whole:json=$"])
def test_each_key_has_its_newest_row_unless_that_is_a_tombstone(declared: str) -> None:
    made = RowMaker(columns_of(declared, []))
    rows = [rows for rows, _ in made.rows(batch_of(RECORDS), 0, 8)]
    with duckdb.connect() as connection:
        connection.register("orders", pa.Table.from_batches(rows, made.schema))
        query = newest_by_key("duckdb", "orders", has_value=not declared)
        found = connection.execute(f'SELECT "offset" FROM ({query}) ORDER BY ALL').fetchall()
        names = [name for name, *_ in connection.execute(query).description]
    assert found == [(4,), (6,), (7,)]
    assert names == made.schema.names

"""What to enter first to read a table, as the page and the command show it."""

from __future__ import annotations

from seb_appliance.formats.lake.readers import ENGINES, first_cells

PLACE = ("http://127.0.0.1:51313", "s3://orders/tables/1-orders")


def test_a_table_of_iceberg_is_read_as_iceberg_before_its_first_commit_too() -> None:
    cells = first_cells("orders", *PLACE, ["iceberg"], None)
    assert tuple(cells) == ENGINES
    assert "iceberg_scan" in cells["duckdb"]
    assert "/1-orders/metadata/vN.metadata.json" in cells["polars"]
    assert not any("delta" in cell or "None" in cell for cell in cells.values())


def test_a_table_of_delta_alone_is_read_as_delta() -> None:
    cells = first_cells("orders", *PLACE, ["delta"], None)
    assert "delta_scan('s3://orders/tables/1-orders')" in cells["duckdb"]
    assert "trino" not in cells

"""Rows that a transaction is about to change, and what they add to the file's checksum."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, func, select

from seb_appliance.state import rows
from seb_appliance.state.digest import row_checksum


def rows_with(
    connection: Connection, column: Column[Any], values: Sequence[int | str]
) -> Sequence[rows.ResultRow]:
    """The table's rows whose `column` is one of `values`, however many these are."""
    if not values:
        return ()
    # One JSON parameter: SQLite bounds the number of parameters.
    wanted = select(func.json_each(json.dumps(values)).table_valued("value").c.value)
    return connection.execute(select(column.table).where(column.in_(wanted))).all()


def checksum_of(table: Table, found: Iterable[Iterable[Any]]) -> int:
    return sum(row_checksum(table.name, row) for row in found)

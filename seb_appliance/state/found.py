"""Rows that a transaction is about to change, and what they add to the file's checksum."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, func, select

from seb_appliance.state import rows
from seb_appliance.state.connection import ROW_CHECKSUM
from seb_appliance.state.digest import row_checksum


def rows_with(
    connection: Connection, column: Column[Any], values: Sequence[int | str]
) -> Sequence[rows.ResultRow]:
    """The table's rows whose `column` is one of `values`, however many these are."""
    if not values:
        return ()
    return connection.execute(select(column.table).where(one_of(column, values))).all()


def checksum_where(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    """What the rows add up to, however many these are."""
    one = getattr(func, ROW_CHECKSUM)(table.name, *table.columns)
    found: int | None = connection.execute(select(func.sum(one)).where(which)).scalar()
    return found or 0


def one_of(column: Column[Any], values: Sequence[int | str]) -> ColumnElement[bool]:
    # One JSON parameter: SQLite bounds the number of parameters.
    wanted = select(func.json_each(json.dumps(values)).table_valued("value").c.value)
    return column.in_(wanted)


def checksum_of(table: Table, found: Iterable[Iterable[Any]]) -> int:
    return sum(row_checksum(table.name, row) for row in found)

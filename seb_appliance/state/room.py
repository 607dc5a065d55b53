"""Which rows of a table are forgotten when it is full, as `broker/shares.py` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, func, literal, select

from seb_appliance.broker.shares import ForgettingShares

_ROWS_AT_ONCE: Final = 100
_ONE: Final = literal(1)


@dataclass(frozen=True)
class Owned:
    """Rows of one table: the columns that say whose a row is, its place in order, its weight."""

    owner: Sequence[Column[Any]]
    place: Column[int]
    weight: ColumnElement[int] = _ONE


def gone_for_room(connection: Connection, owned: Owned, limit: int) -> list[int]:
    """Places of the rows that have to go so that the others find room within `limit`."""
    shares = ForgettingShares(owned.place.table.name, limit, "rows")
    oldest: dict[str | None, Iterator[tuple[int, int, str]]] = {None: _oldest(connection, owned)}
    totals = select(func.sum(owned.weight), *owned.owner).group_by(*owned.owner)
    for total, *values in connection.execute(totals).all():
        name = _name(values)
        shares.take_anyway(name, total)
        oldest[name] = _oldest(connection, owned, values)
    gone: dict[int, None] = {}
    for loser in shares.losers():
        place, weight, owner = next(row for row in oldest[loser] if row[0] not in gone)
        gone[place] = None
        shares.give_back(owner, weight)
    return list(gone)


def _name(values: Sequence[Any]) -> str:
    return "\n".join(map(str, values))


def _oldest(
    connection: Connection, owned: Owned, values: Sequence[Any] = ()
) -> Iterator[tuple[int, int, str]]:
    """Place, weight and owner's name of each row of one owner (no `values`: of all), the oldest
    first."""
    is_his = [column == value for column, value in zip(owned.owner, values, strict=False)]
    query = select(owned.place, owned.weight, *owned.owner).where(*is_his).order_by(owned.place)
    after = 0
    while found := connection.execute(query.where(owned.place > after).limit(_ROWS_AT_ONCE)).all():
        for after, weight, *owner in found:
            yield after, weight, _name(owner)

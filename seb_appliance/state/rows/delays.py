"""Delayed records in SQLite: a row for each range of offsets that is due at one time.

There may be millions, so none is loaded at a start; queues read pages of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from seb_appliance.broker.ports import DelayedTopic, DelayRange, Span
from seb_appliance.formats.operations import (
    DELAYS_FORGOTTEN_AT_ONCE,
    DelayEvent,
    DelaysPassed,
    RecordsDelayed,
)
from seb_appliance.state.rows.reading import RowReader
from seb_appliance.state.tables import Tables

_SUMS: Final = """
SELECT topic_id, sum(end_offset - first_offset), min(first_offset) FROM delays GROUP BY topic_id
"""
_BEFORE: Final = "topic_id = :topic_id AND due_us <= :until_us"
_LAST_TO_GO: Final = f"""
SELECT due_us, first_offset FROM delays WHERE {_BEFORE}
ORDER BY due_us, first_offset LIMIT 1 OFFSET {DELAYS_FORGOTTEN_AT_ONCE - 1}
"""  # noqa: S608 - a number of our own
_COLUMNS: Final = "SELECT due_us, first_offset, min(end_offset, ?) FROM delays WHERE topic_id = ?"
_BY_TIME: Final = f"""
{_COLUMNS} AND first_offset < ? AND (due_us, first_offset) > (?, ?)
ORDER BY due_us, first_offset LIMIT ?
"""
# Ranges do not overlap: only the last one that begins at or below an offset may reach beyond it.
_BY_OFFSET: Final = f"""
{_COLUMNS} AND first_offset < ? AND end_offset > ? AND first_offset >= coalesce(
    (SELECT max(first_offset) FROM delays WHERE topic_id = ? AND first_offset <= ?), 0
)
ORDER BY first_offset LIMIT ?
"""  # noqa: S608 - constants of our own


def project(tables: Tables, event: DelayEvent) -> None:
    match event:
        case RecordsDelayed(topic_id=topic_id):
            rows = (
                (topic_id, one.due_us, one.offset, one.offset + one.count) for one in event.delays
            )
            tables.insert("delays", rows)
        case DelaysPassed():
            key = {"topic_id": event.topic_id, "until_us": event.until_us}
            if last := tables.rows(_LAST_TO_GO, **key):
                due_us, first = last[0]
                where = f"{_BEFORE} AND (due_us, first_offset) <= (:due_us, :first)"
                tables.delete_where("delays", where, due_us=due_us, first=first, **key)
            else:
                tables.delete_where("delays", _BEFORE, **key)


def load(connection: sqlite3.Connection) -> list[DelayedTopic]:
    return [DelayedTopic(*row) for row in connection.execute(_SUMS)]


class DelayReader(RowReader):
    """Fulfils `broker.ports.Delays`, as far as entries are committed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "delays")

    async def by_time(
        self, spans: Sequence[Span], after: tuple[int, int], most: int
    ) -> list[DelayRange]:
        found = list[DelayRange]()
        for topic_id, end in spans:
            rows = await self.rows(_BY_TIME, end, topic_id, end, *after, most)
            found += map(DelayRange._make, rows)
        return sorted(found)[:most]

    async def by_offset(self, spans: Sequence[Span], offset: int, most: int) -> list[DelayRange]:
        found = list[DelayRange]()
        for topic_id, end in spans:  # an ancestor's offsets come before
            left = most - len(found)
            if left > 0 and end > offset:
                parameters = (end, topic_id, end, offset, topic_id, offset, left)
                rows = await self.rows(_BY_OFFSET, *parameters)
                found += map(DelayRange._make, rows)
        return found

    async def sums(self) -> list[DelayedTopic]:
        return [DelayedTopic(*row) for row in await self.rows(_SUMS)]

"""All lake tables: their state, and what is published of them."""

from __future__ import annotations

from collections.abc import Iterable

from seb_appliance.broker.lake.table import LakeTable, TableHead
from seb_appliance.formats.operations import TableCommitted, TableDropped, TableEvent, TableSet


class LakeTables:
    """Changed only by applying journal entries, except `publish`."""

    def __init__(self, tables: Iterable[LakeTable]) -> None:
        self._tables = {table.head.table_id: table for table in tables}
        self._published: dict[str, TableHead] = {}

    def all(self) -> list[LakeTable]:
        """In the order in which they were made."""
        return list(self._tables.values())

    def get(self, table_id: str) -> LakeTable | None:
        return self._tables.get(table_id)

    def of_topic(self, topic_id: int) -> LakeTable | None:
        for table in self._tables.values():
            if table.head.definition.topic_id == topic_id:
                return table
        return None

    @property
    def stored_bytes(self) -> int:
        """Of all data files, also those that only older snapshots have."""
        return sum(t.stored_bytes for t in self._tables.values())

    def published(self, table_id: str) -> TableHead | None:
        """The table as of the last commit whose metadata is in the bucket; None before the first
        one since the start."""
        return self._published.get(table_id)

    def publish(self, head: TableHead) -> None:
        """The metadata of its last commit is in the bucket now."""
        self._published[head.table_id] = head.copy()

    def apply(self, event: TableEvent, created_us: int) -> None:
        match event:
            case TableSet(table_id=table_id):
                if (table := self._tables.get(table_id)) is None:
                    self._tables[table_id] = LakeTable.made(event, created_us)
                else:
                    table.set(event, created_us)
            case TableCommitted(table_id=table_id):
                self._tables[table_id].commit(event, created_us)
            case TableDropped(table_id=table_id):
                del self._tables[table_id]
                self._published.pop(table_id, None)

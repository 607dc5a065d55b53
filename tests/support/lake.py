"""A lake table, and the events that its keeper would add next."""

from __future__ import annotations

from msgspec.structs import replace

from seb_appliance.broker.lake.due import oldest_kept, rewritten
from seb_appliance.broker.lake.table import LakeTable
from seb_appliance.formats.lake.tables import TableFile, TableRange, all_columns
from seb_appliance.formats.operations import TableCommitted, TableEvent, TableSet

SECOND_US = 1_000_000
SET = TableSet(
    table_id="00112233445566aa",
    topic_id=7,
    name="orders.eu",
    location="tables/00112233-orders-eu/",
    address="s3://lake",
    formats=("iceberg", "delta"),
    columns=all_columns((), rest=False),
)


def data_file(
    first: int, last: int, length: int = 1_000, created_us: int = 0, as_of: int = 0
) -> TableFile:
    name = f"data/{first}-{last}.parquet"
    return TableFile(name, length, last - first + 1, 0, first, last, 0, 0, 0, (), created_us, as_of)


class Story:
    """A table and what its keeper would do next."""

    def __init__(self, definition: TableSet = SET) -> None:
        self.now_us = 1_000 * SECOND_US
        self.table = LakeTable.made(definition, self.now_us)
        self.events: list[tuple[TableEvent, int]] = [(definition, self.now_us)]

    def set(self, definition: TableSet) -> None:
        self.now_us += 60 * SECOND_US
        self.table.set(definition, self.now_us)
        self.events.append((definition, self.now_us))

    def commit(self, *added: TableFile, removed: tuple[str, ...] = (), keep: int = 100) -> None:
        table = self.table
        gone = [table.files[name] for name in removed]
        op = "append" if not removed else "replace" if added else "delete"
        first = table.head.next_offset
        upto = max([first, *(one.last_offset + 1 for one in added)])
        event = TableCommitted(
            table_id=SET.table_id,
            number=table.head.number + 1,
            op=op,
            ranges=(TableRange(7, first, upto),) if op == "append" else (),
            added=added,
            removed=removed,
            rewritten=rewritten(table.head, gone),
            oldest=oldest_kept(table.head, keep),
        )
        count = len(table.copy().manifests_after(event))
        event = replace(event, manifest_bytes=(500,) * count)
        self.now_us += 60 * SECOND_US
        table.commit(event, self.now_us)
        self.events.append((event, self.now_us))

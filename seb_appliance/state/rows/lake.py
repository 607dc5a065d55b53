"""Lake tables in SQLite: the rows that one event changes, and loading all of them."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from seb_appliance.broker.lake.table import LakeFile, LakeTable, TableHead
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.operations import TableCommitted, TableDropped, TableEvent, TableSet
from seb_appliance.state.tables import Row, Tables, one_of

_encode: Final = msgspec.msgpack.Encoder().encode
_head: Final = msgspec.msgpack.Decoder(TableHead).decode
_file: Final = msgspec.msgpack.Decoder(LakeFile).decode

_HEAD: Final = "SELECT head FROM lake_tables WHERE table_id = :table_id"
# What a commit may change: files that it removes, of manifests that it rewrites, or removed before.
_TOUCHED: Final = """
table_id = :table_id AND (removed > 0 OR listed IN (SELECT value FROM json_each(:listed))
    OR name IN (SELECT value FROM json_each(:names)))
"""


def project(tables: Tables, event: TableEvent, created_us: int) -> None:
    """Apply an event to the rows, as broker/lake/tables.py does in memory."""
    key = {"table_id": event.table_id}
    head = tables.value(_HEAD, **key)
    match event:
        case TableSet():
            if head is None:
                table = LakeTable.made(event, created_us)
            else:
                table = LakeTable(_head(head))
                table.set(event, created_us)
        case TableCommitted():
            if head is None:
                raise CorruptObjectError(f"a commit of table {event.table_id}, which is not there")
            table = _commit(tables, LakeTable(_head(head)), event, created_us)
        case TableDropped():
            tables.delete("lake_files", **key)
            tables.delete("lake_tables", **key)
            return
    # An update keeps the row's id: `load` tells by it which of two tables was made first.
    if not tables.update("lake_tables", key, head=_encode(table.head)):
        tables.insert("lake_tables", [(event.table_id, _encode(table.head))])


def _commit(tables: Tables, table: LakeTable, event: TableCommitted, created_us: int) -> LakeTable:
    touched = {
        "table_id": event.table_id,
        "listed": one_of([name.version for name in event.rewritten]),
        "names": one_of(event.removed),
    }
    rows = tables.rows(f"SELECT name, file FROM lake_files WHERE {_TOUCHED}", **touched)  # noqa: S608
    table.files = {name: _file(body) for name, body in rows}
    table.commit(event, created_us)
    tables.delete_where("lake_files", _TOUCHED, **touched)
    tables.insert("lake_files", [_row(event.table_id, one) for one in table.files.values()])
    return table


def _row(table_id: str, one: LakeFile) -> Row:
    return table_id, one.file.name, one.manifest.version, one.removed, _encode(one)


def load(connection: sqlite3.Connection) -> list[LakeTable]:
    """All tables, in the order in which they were made."""
    heads = connection.execute("SELECT table_id, head FROM lake_tables ORDER BY rowid")
    tables = {table_id: LakeTable(_head(head)) for table_id, head in heads}
    for table_id, name, body in connection.execute("SELECT table_id, name, file FROM lake_files"):
        tables[table_id].files[name] = _file(body)
    return sorted(tables.values(), key=lambda table: table.head.made_ms)

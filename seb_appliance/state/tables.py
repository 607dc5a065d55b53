"""Changes of the tables, and what they add to the checksum of the state file.

The **checksum** is the sum, modulo 2**32, of the CRC-32C of every row. `journal_state.checksum`
holds it, and each transaction updates it by the rows that it changed. Opening a file recomputes it,
which finds a flipped bit or a stale page that no check of SQLite finds. The **digest** is the
SHA-256 over all rows in the order of their keys: two files with equal digests hold the same state.

Both read the tables as they are in the file, so they hold for every revision of the schema.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from crc32c import crc32c

from seb_appliance.formats.entry import ORIGIN, Position
from seb_appliance.state.files import read_only

CHECKSUM_MODULUS: Final = 2**32

Row: TypeAlias = tuple[Any, ...]
"""A row of a table, its columns in the table's order."""

_IN: Final = "IN (SELECT value FROM json_each(:values))"
_encode: Final = msgspec.msgpack.Encoder().encode


class JournalState(msgspec.Struct, frozen=True):
    """The row of `journal_state`, its columns in order. `bucket_id` is known with the first entry.
    The sections of entries up to `paged_seq` are in pages of the index, the `waiting_sections` of
    later entries are not yet. `requests_place` is the place of the newest request ever."""

    id: int = 1
    bucket_id: bytes | None = None
    applied_seq: int = ORIGIN.seq
    epoch: int = ORIGIN.epoch
    writer_id: bytes = ORIGIN.writer_id
    entry_id: bytes = ORIGIN.entry_id
    header_crc: int = ORIGIN.header_crc
    created_us: int = ORIGIN.created_us
    next_topic_id: int = 1
    paged_seq: int = ORIGIN.seq
    waiting_sections: int = 0
    requests_place: int = 0
    checksum: int = 0

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> JournalState:
        return cls(*connection.execute("SELECT * FROM journal_state").fetchone())

    @property
    def position(self) -> Position:
        """The last entry that is projected."""
        return Position(*self.row[2:8])

    @property
    def row(self) -> Row:
        """All columns but the checksum, which the checksum does not cover."""
        return msgspec.structs.astuple(self)[:-1]


class Tables:
    """The tables during one transaction. `grown`: what the changes so far add to the checksum."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.grown = 0
        self._connection = connection

    def rows(self, query: str, **parameters: Any) -> list[Row]:
        return self._connection.execute(query, parameters).fetchall()

    def each(self, query: str, **parameters: Any) -> Iterator[Row]:
        """The rows one by one, for a query with many."""
        return self._connection.execute(query, parameters)

    def value(self, query: str, **parameters: Any) -> Any:
        """The first column of the first row; None if there is none."""
        row = self._connection.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    # The names of tables and columns below are our own.

    def insert(self, table: str, rows: Iterable[Row]) -> None:
        left = iter(rows)
        if (first := next(left, None)) is not None:
            marks = ", ".join("?" * len(first))
            self._connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})",  # noqa: S608
                self._added(table, chain([first], left)),
            )

    def rows_in(self, columns: str, table: str, column: str, values: Sequence[Any]) -> list[Row]:
        """The rows whose `column` is one of `values`."""
        query = f"SELECT {columns} FROM {table} WHERE {column} {_IN}"  # noqa: S608
        return self.rows(query, values=one_of(values))

    def delete_in(self, table: str, column: str, values: Sequence[Any]) -> int:
        return self.delete_where(table, f"{column} {_IN}", values=one_of(values))

    def delete(self, table: str, **key: Any) -> int:
        """Delete the rows where the columns equal `key`; returns how many."""
        return self.delete_where(table, _equal(key), **key)

    def delete_where(self, table: str, where: str, **parameters: Any) -> int:
        """Delete the rows of which `where` is true (`this` names the row); returns how many."""
        query = f"DELETE FROM {table} AS this WHERE {where} RETURNING *"  # noqa: S608
        return self._take_out(table, self._connection.execute(query, parameters))

    def update(self, table: str, key: dict[str, Any], **changes: Any) -> int:
        """Set columns of the rows where the columns equal `key`; returns how many."""
        before = f"SELECT * FROM {table} WHERE {_equal(key)}"  # noqa: S608
        self._take_out(table, self._connection.execute(before, key))
        columns = ", ".join(f"{name} = :{name}" for name in changes)
        query = f"UPDATE {table} SET {columns} WHERE {_equal(key)} RETURNING *"  # noqa: S608
        rows = self._connection.execute(query, key | changes)
        return sum(1 for _ in self._added(table, rows))

    def set_state(self, before: JournalState, after: JournalState) -> JournalState:
        """Write the row of `journal_state`, with the checksum of all changes; what was written."""
        checksum = before.checksum + self.grown
        checksum += row_checksum("journal_state", after.row)
        checksum -= row_checksum("journal_state", before.row)
        self.grown = 0
        after = msgspec.structs.replace(after, checksum=checksum % CHECKSUM_MODULUS)
        columns = ", ".join(f"{name} = :{name}" for name in after.__struct_fields__)
        query = f"UPDATE journal_state SET {columns}"  # noqa: S608
        self._connection.execute(query, msgspec.structs.asdict(after))
        return after

    def _added(self, table: str, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self.grown += row_checksum(table, row)
            yield row

    def _take_out(self, table: str, rows: Iterable[Row]) -> int:
        count = 0
        for row in rows:
            self.grown -= row_checksum(table, row)
            count += 1
        return count


def _equal(columns: Iterable[str]) -> str:
    return " AND ".join(f"{name} = :{name}" for name in columns)


def one_of(values: Sequence[Any]) -> str:
    """The parameter of `column IN (SELECT value FROM json_each(:parameter))`. One parameter holds
    all values, because SQLite limits the number of parameters."""
    return json.dumps(values)


def row_checksum(table: str, row: Iterable[Any]) -> int:
    """The CRC-32C of one row, its columns in the table's order (without `checksum` itself)."""
    checksum: int = crc32c(_encode((table, *row)))
    return checksum


def rows_checksum(connection: sqlite3.Connection) -> int:
    """What `journal_state.checksum` must be. Reads every row of every table."""
    rows = _all_rows(connection)
    return sum(row_checksum(table, row) for table, row in rows) % CHECKSUM_MODULUS


def state_digest(path: Path) -> str:
    """The SHA-256, in hex, of the committed state in the file at `path`."""
    digest = hashlib.sha256()
    with closing(read_only(path)) as connection:
        for table, row in _all_rows(connection):
            digest.update(_encode((table, *row)))
    return digest.hexdigest()


def _all_rows(connection: sqlite3.Connection) -> Iterator[tuple[str, Row]]:
    """Every row of every table, by table name and primary key, without the column `checksum`."""
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    for (table,) in names.fetchall():
        columns = connection.execute(
            "SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", (table,)
        ).fetchall()
        wanted = ", ".join(f'"{name}"' for name, _ in columns if name != "checksum")
        keys = sorted((place, name) for name, place in columns if place)
        order = ", ".join(f'"{name}"' for _, name in keys)
        # The names come from the schema that checks.py has compared with ours.
        query = f'SELECT {wanted} FROM "{table}" ORDER BY {order}'  # noqa: S608
        for row in connection.execute(query):
            yield table, row

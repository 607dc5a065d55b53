"""What the rows of a state file add up to: a checksum kept in the file, and a digest to compare.

The **checksum** is the sum, modulo 2**32, of the CRC-32C of every row. `journal_state.checksum`
holds it and each transaction brings it up to date by what it changed, so that opening a file tells
a flipped bit or a stale page, which no check of SQLite's own finds. The **digest** is the SHA-256
over all rows in the order of their keys: two files with equal digests hold the same state.

Both take the tables as they are in the file, so they hold for every revision of the schema.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
from crc32c import crc32c

CHECKSUM_MODULUS: Final = 2**32

_encode: Final = msgspec.msgpack.Encoder().encode


def row_checksum(table: str, row: Iterable[Any]) -> int:
    """The CRC-32C of one row, its columns in the table's order (without `checksum` itself)."""
    checksum: int = crc32c(_encode((str(table), *row)))  # SQLAlchemy's names only derive from str
    return checksum


def rows_checksum(connection: sqlite3.Connection) -> int:
    """What `journal_state.checksum` must be. Reads every row of every table."""
    rows = _rows(connection)
    return sum(row_checksum(table, row) for table, row in rows) % CHECKSUM_MODULUS


def state_digest(path: Path) -> str:
    """The SHA-256, in hex, of the committed state in the file at `path`."""
    digest = hashlib.sha256()
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        for table, row in _rows(connection):
            digest.update(_encode((table, *row)))
    return digest.hexdigest()


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every row of every table, by table name and key, without the column `checksum`."""
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    for (table,) in names.fetchall():
        columns = connection.execute(
            "SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", (table,)
        )
        pairs = columns.fetchall()
        wanted = ", ".join(f'"{name}"' for name, _ in pairs if name != "checksum")
        order = ", ".join(f'"{name}"' for name, pk in sorted(pairs, key=_key_order) if pk)
        # The names come from the schema that checks.py has compared with ours.
        rows = connection.execute(f'SELECT {wanted} FROM "{table}" ORDER BY {order}')  # noqa: S608
        for row in rows:
            yield table, row


def _key_order(column: tuple[str, int]) -> int:
    """Place of a column in its table's primary key."""
    return column[1]

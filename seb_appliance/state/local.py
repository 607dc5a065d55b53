"""local.sqlite: what this machine keeps for itself and no journal holds. It may be lost.

Blocking; called in threads. A file that cannot be read is replaced by an empty one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from seb_appliance.errors import CorruptObjectError
from seb_appliance.state import files
from seb_appliance.state.files import sqlite_errors

_T = TypeVar("_T")

# What makes each version of the one before; the first makes version 1 of an empty file.
_STEPS: Final = (
    """
CREATE TABLE last_used (
    api_key_id TEXT NOT NULL PRIMARY KEY,
    used_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
""",
    """
CREATE TABLE documents (
    name TEXT NOT NULL PRIMARY KEY,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
""",
)


class LocalFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def load_last_used(self, api_key_ids: Collection[str]) -> dict[str, int]:
        """µs since the epoch, by API key id; others than these are forgotten. Raises
        ConfigurationError if the machine does not let us use the file."""
        return self._anew_if_damaged(lambda: self._load(api_key_ids))

    def save_last_used(self, used_us: Mapping[str, int]) -> None:
        """Replace the times of these keys. Raises ConfigurationError,
        CorruptObjectError."""
        with self._opened() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO last_used VALUES (?, ?)", used_us.items()
            )

    def load_document(self, name: str) -> bytes | None:
        """The document that was saved last. Raises ConfigurationError."""

        def load() -> bytes | None:
            with self._opened() as connection:
                rows = connection.execute("SELECT body FROM documents WHERE name = ?", (name,))
                found = rows.fetchone()
            return None if found is None else bytes(found[0])

        return self._anew_if_damaged(load)

    def save_document(self, name: str, body: bytes) -> None:
        """Replace a document. Raises ConfigurationError,
        CorruptObjectError."""
        with self._opened() as connection:
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", (name, body))

    def _anew_if_damaged(self, load: Callable[[], _T]) -> _T:
        try:
            return load()
        except CorruptObjectError:
            with sqlite_errors(self._path):
                files.create_private(self._path)
            return load()

    def _load(self, api_key_ids: Collection[str]) -> dict[str, int]:
        with self._opened() as connection:
            found = dict(connection.execute("SELECT api_key_id, used_us FROM last_used"))
            gone = [(api_key_id,) for api_key_id in found.keys() - set(api_key_ids)]
            connection.executemany("DELETE FROM last_used WHERE api_key_id = ?", gone)
            return {known: used_us for known, used_us in found.items() if known in api_key_ids}

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction; the file is made if it is missing."""
        with sqlite_errors(self._path):
            if not self._path.exists():
                files.create_private(self._path)
            with closing(sqlite3.connect(self._path)) as connection, connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version > len(_STEPS):
                    raise CorruptObjectError(f"it is of version {version}")
                for number, step in enumerate(_STEPS[version:], version + 1):
                    connection.executescript(f"{step}PRAGMA user_version = {number};")
                yield connection

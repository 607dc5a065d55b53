"""local.sqlite: what this machine remembers for itself and no journal holds. May be lost.

Blocking; called in threads, one call at a time. A file that cannot be read is begun anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from seb_appliance.errors import CorruptObjectError
from seb_appliance.state import files
from seb_appliance.state.failures import told_of

_VERSION: Final = 1
_MAKE: Final = f"""
CREATE TABLE last_used (
    api_key_id TEXT NOT NULL PRIMARY KEY,
    used_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version = {_VERSION};
"""


class LocalFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def load_last_used(self, api_key_ids: Collection[str]) -> dict[str, int]:
        """µs since the epoch, by API key id; others than these are forgotten. Raises
        ConfigurationError if the machine does not let us use the file."""
        try:
            return self._load(api_key_ids)
        except CorruptObjectError:
            with told_of(self._path):
                files.create_private(self._path)
            return self._load(api_key_ids)

    def save_last_used(self, used_us: Mapping[str, int]) -> None:
        """Put these in the place of what was known of the same keys. Raises ConfigurationError,
        CorruptObjectError."""
        with self._opened() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO last_used VALUES (?, ?)", used_us.items()
            )

    def _load(self, api_key_ids: Collection[str]) -> dict[str, int]:
        with self._opened() as connection:
            found = dict(connection.execute("SELECT api_key_id, used_us FROM last_used"))
            gone = [(api_key_id,) for api_key_id in found.keys() - set(api_key_ids)]
            connection.executemany("DELETE FROM last_used WHERE api_key_id = ?", gone)
            return {known: used_us for known, used_us in found.items() if known in api_key_ids}

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction; the file is made if it is missing."""
        with told_of(self._path):
            if not self._path.exists():
                files.create_private(self._path)
            with closing(sqlite3.connect(self._path)) as connection, connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version == 0:
                    connection.executescript(_MAKE)
                elif version != _VERSION:
                    raise CorruptObjectError(f"it is of version {version}")
                yield connection

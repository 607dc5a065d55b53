"""What an error of SQLite or of the file system means for the state file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

from seb_appliance.errors import ConfigurationError, CorruptObjectError

# What an operator must see to. Every other error of SQLite says something about the file.
_OPERATOR: Final = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the file system inside, raised as ours.

    CorruptObjectError: the file is damaged, or what is projected contradicts it.
    ConfigurationError: the machine does not let us use it (disk full, no permission, in use).
    """
    try:
        yield
    except DBAPIError as error:
        raise _meaning(path, error.orig) from error
    # A damaged file can tell SQLite to take more memory than there is.
    except (sqlite3.Error, UnicodeError, OSError, MemoryError) as error:
        raise _meaning(path, error) from error


def _meaning(path: Path, error: BaseException | None) -> CorruptObjectError | ConfigurationError:
    # What Python says itself (of text that is no UTF-8) has no code of SQLite: it is the content.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if isinstance(error, OSError) or code in _OPERATOR:
        return ConfigurationError(
            f"the local state {path} cannot be used: {error}. Check the disk, its free space, the"
            " directory's owner, and that no other appliance runs on this data directory"
        )
    return CorruptObjectError(f"{path} is not a sound state: {str(error) or type(error).__name__}")

"""SQLite files and what SQLite keeps beside them: created private, moved aside, put in place; and
what an error of SQLite or of the file system means."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from seb_appliance.errors import ConfigurationError, CorruptObjectError, DiskError

DAMAGED_KEPT: Final = 3
KEY_INDEX: Final = "keyindex.sqlite"

_BESIDE: Final = ("-wal", "-shm")
# They may be over at the next start.
_DISK: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_DISK_ERRNO: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
# The operator must correct these. Every other error of SQLite says something about the file.
_OPERATOR: Final = (
    *_DISK,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and of the file system.

    CorruptObjectError: the file is damaged, or contradicts what is projected.
    ConfigurationError: the machine does not let us use it (no permission, in use); DiskError if
    its disk is full or fails.
    """
    try:
        yield
    # A damaged file can make SQLite ask for more memory than there is.
    except (sqlite3.Error, UnicodeError, OSError, MemoryError) as error:
        # An error without a code of SQLite comes from Python (text that is not UTF-8): the content.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if isinstance(error, OSError) or code in _OPERATOR:
            is_disk = code in _DISK or getattr(error, "errno", 0) in _DISK_ERRNO
            raise (DiskError if is_disk else ConfigurationError)(
                f"the local state {path} cannot be used: {error}. Check the disk, its free space,"
                " the owner of the directory, and that no other appliance uses this data directory"
            ) from error
        sentence = f"{path} is not a sound state: {str(error) or type(error).__name__}"
        raise CorruptObjectError(sentence) from error


def read_only(path: Path, **options: Any) -> sqlite3.Connection:
    """A connection that reads the file and waits for a lock for 5 s."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection: sqlite3.Connection = sqlite3.connect(address, uri=True, timeout=5, **options)
    return connection


def check_pages(connection: sqlite3.Connection) -> None:
    """Check all pages and, unlike quick_check, compare the indexes with their tables. Raises
    CorruptObjectError."""
    problems = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if problems != [("ok",)]:
        raise CorruptObjectError(f"its pages do not agree: {problems[0][0]}")


def create_private(path: Path) -> None:
    """Make an empty file that only its owner may read; an existing one is removed first.

    SQLite gives its own files beside it the same mode.
    """
    remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def copy_private(source: Path, target: Path) -> None:
    """Copy a file's bytes to `target`, which only its owner may read."""
    create_private(target)
    shutil.copyfile(source, target)


def remove(path: Path) -> None:
    """Remove a state file and the files beside it, if they exist."""
    for suffix in (*_BESIDE, ""):
        _with(path, suffix).unlink(missing_ok=True)


def move_aside(path: Path) -> Path:
    """Move the state file, and the files beside it, to `<name>.damaged-<n>` for inspection.

    Only the newest `DAMAGED_KEPT` of them are kept.
    """
    prefix = f"{path.name}.damaged-"
    numbers = [found.name.removeprefix(prefix) for found in path.parent.glob(f"{prefix}*")]
    kept = sorted({int(number) for number in numbers if number.isdigit()})
    target = path.with_name(f"{path.name}.damaged-{kept[-1] + 1 if kept else 1}")
    # The WAL goes first: left behind, it would be replayed into the next file of that name.
    for suffix in (*_BESIDE, ""):
        if _with(path, suffix).exists():
            _with(path, suffix).rename(_with(target, suffix))
    for number in kept[: max(0, len(kept) + 1 - DAMAGED_KEPT)]:
        remove(path.with_name(f"{path.name}.damaged-{number}"))
    return target


def keep_revision(path: Path, revision: str) -> Path:
    """Copy the closed state file before a migration; earlier such copies are removed."""
    for earlier in path.parent.glob(f"{path.name}.revision-*"):
        earlier.unlink()
    kept = path.with_name(f"{path.name}.revision-{revision}")
    half = path.with_name(f"{path.name}.revision-new")
    copy_private(path, half)
    half.replace(kept)
    return kept


def install(candidate: Path, path: Path) -> None:
    """Replace the state file by `candidate`; both are closed. The key index beside it goes first:
    it may be of another history, and the next start would take it for one of this state."""
    remove(path.with_name(KEY_INDEX))
    for suffix in _BESIDE:
        _with(candidate, suffix).unlink(missing_ok=True)
        _with(path, suffix).unlink(missing_ok=True)
    candidate.replace(path)


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)

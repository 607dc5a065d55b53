"""Opens files of the data directory, which may be one that others can write to."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from seb_appliance.errors import ConfigurationError


def open_private(path: Path, flags: int) -> int:
    """A descriptor of the regular file at `path`, which is private if `flags` creates it. Never
    through a symbolic link, nor of a pipe, which would wait. Raises FileNotFoundError, and
    ConfigurationError."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unusable(path, "it is not a regular file")
    return descriptor


def write_whole(descriptor: int, data: bytes) -> None:
    """Raises OSError, also if there is room for a part of it."""
    if os.write(descriptor, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def sync_folder(folder: Path) -> None:
    """So that the names in it survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"cannot use {path} ({why}). The data directory must be one that only its owner can write "
        "to; check --data."
    )

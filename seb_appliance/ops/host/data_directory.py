"""The lock on a data directory: one process at a time has its files."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from seb_appliance.errors import ConfigurationError


@contextlib.contextmanager
def own_data_directory(data: Path) -> Iterator[None]:
    """The data directory, made if missing, ours alone inside the block. Raises
    ConfigurationError."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"cannot use the data directory {data} ({error.strerror}). Check --data."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigurationError(
            f"another seb serve runs on the data directory {data}, or seb fsck checks it. Stop "
            "it, or choose another directory with --data."
        ) from None
    try:
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def data_directory_if_free(data: Path) -> Iterator[bool]:
    """Whether the data directory is ours alone inside the block: False while somebody else has it,
    or where there is none. Raises ConfigurationError without the right to it."""
    try:
        lock = os.open(data / "lock", os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    except OSError as error:
        raise ConfigurationError(
            f"cannot use the data directory {data} ({error.strerror}). Check --data."
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)

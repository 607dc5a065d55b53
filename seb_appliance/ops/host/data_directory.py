"""The data directory of an appliance: its lock, and the file with the admin key."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from seb_appliance.broker.access.audit import AT_THE_MACHINE
from seb_appliance.broker.broker import Broker
from seb_appliance.errors import ConfigurationError
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.storage.private_files import open_private


@contextlib.contextmanager
def own_data_directory(data: Path) -> Iterator[None]:
    """Hold the lock, so that no other process uses the directory; make it if it is missing.
    Raises ConfigurationError."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unusable(data, error) from error
    with _locked(data, os.O_RDWR | os.O_CREAT) as is_ours:
        if not is_ours:
            raise ConfigurationError(
                f"another seb serve runs on the data directory {data}, or seb fsck checks it. Stop "
                "it, or choose another directory with --data."
            )
        yield


@contextlib.contextmanager
def data_directory_if_free(data: Path) -> Iterator[bool]:
    """Hold the lock if it is free. False while another process holds it, or if there is no
    directory. Raises ConfigurationError without the right to it."""
    with _locked(data, os.O_RDWR) as is_ours:
        yield is_ours


@contextlib.contextmanager
def _locked(data: Path, flags: int) -> Iterator[bool]:
    try:
        lock = open_private(data / "lock", flags)
    except FileNotFoundError as error:
        if flags & os.O_CREAT:
            raise _unusable(data, error) from error
        yield False
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except BlockingIOError:
            is_ours = False
        yield is_ours
    finally:
        os.close(lock)


def _unusable(data: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"cannot use the data directory {data} ({error.strerror}). Check --data."
    )


FILE_NAME = "admin.key"
_GRANTS = (Grant(operation="admin"),)


async def ensure_admin_key(broker: Broker, data: Path) -> None:
    """Make the first admin key of a bucket that has no API key at all.

    If the file is lost, `seb admin reset-key` makes a new key. The file is written before the key
    is created: after a crash between them, the next start replaces the file. In the other order, a
    crash would leave a key that nobody knows.
    """
    if broker.access.all():
        return
    secret = broker.access.draw_secret()
    new = await asyncio.to_thread(_write_private, data, secret.token)
    await asyncio.to_thread(new.replace, data / FILE_NAME)
    await broker.access.create("admin", _GRANTS, secret=secret)


async def reset_admin_key(broker: Broker, data: Path, turn: asyncio.Lock) -> Path:
    """Make one more admin key and put it into the file; the file's path. Other keys stay.

    The key comes before the file: until the new key works, the file holds the old one. `turn`: of
    all calls, because two at once would use one temporary file.
    """
    async with turn:
        secret = broker.access.draw_secret()
        new = await asyncio.to_thread(_write_private, data, secret.token)
        await broker.access.create("admin", _GRANTS, secret=secret, by=AT_THE_MACHINE)
        return await asyncio.to_thread(new.replace, data / FILE_NAME)


def _write_private(data: Path, token: str) -> Path:
    path = data / f"{FILE_NAME}.new"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    return path

"""The admin key's file: made at the first start, mode 0600, never printed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from seb_appliance.broker.access.audit import AT_THE_MACHINE
from seb_appliance.broker.broker import Broker
from seb_appliance.formats.api_key_members import Grant

FILE_NAME = "admin.key"
_GRANTS = (Grant(operation="admin"),)


async def ensure_admin_key(broker: Broker, data: Path) -> None:
    """Make the first admin key of a bucket that has no API key at all.

    A bucket that has keys keeps them, also when the file is lost: `seb admin reset-key` makes a
    new one. The file comes before the key: a crash between them leaves a file that the next start
    replaces; the other way round it would leave a key that nobody knows.
    """
    if broker.access.all():
        return
    secret = broker.access.draw_secret()
    new = await asyncio.to_thread(_write_private, data, secret.token)
    await asyncio.to_thread(new.replace, data / FILE_NAME)
    await broker.access.create("admin", _GRANTS, secret=secret)


async def reset_admin_key(broker: Broker, data: Path) -> Path:
    """Make one more admin key and put it into the file; the file's path. Other keys stay.

    The key comes before the file: until the new key works, the file holds the old one.
    """
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

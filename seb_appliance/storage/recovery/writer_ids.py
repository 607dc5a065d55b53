"""The writer ids that a data directory has used, by which a start recognizes its earlier epochs.

A writer id is 16 random bytes, new at each start, so that cloned disks never write the same keys.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from seb_appliance.errors import DiskError
from seb_appliance.storage.private_files import open_private, sync_folder, write_whole

_LINE = re.compile(rb"[0-9a-f]{32}")


class WriterIds:
    """One id a line, in hexadecimal, oldest first. Blocking: call it in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def known(self) -> frozenset[bytes]:
        """The remembered ids; a line that a crash cut short is ignored. Raises
        ConfigurationError."""
        try:
            descriptor = open_private(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return frozenset()
        with os.fdopen(descriptor, "rb") as file:
            lines = file.read().split(b"\n")
        return frozenset(bytes.fromhex(x.decode()) for x in lines if _LINE.fullmatch(x))

    def remember(self, writer_id: bytes) -> None:
        """Durable on return. Call it before the id reaches the bucket: a later start that does not
        recognize the epoch would require --take-over. Raises ConfigurationError, DiskError."""
        descriptor = open_private(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            # A newline first, too: a crash may have cut the previous line short.
            write_whole(descriptor, b"\n" + writer_id.hex().encode() + b"\n")
            os.fsync(descriptor)
        except OSError as error:
            raise DiskError(
                f"cannot write {self._path} ({error.strerror}). Check the disk and its free space."
            ) from error
        finally:
            os.close(descriptor)
        sync_folder(self._path.parent)

"""Temporary files of the directory store, and what a crash left of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TEMPORARY_FOLDER: Final = ".tmp"  # in the root, so that links stay in one file system


class TemporaryFile:
    """An open file that is not an object yet."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self._file = file

    def write(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._file, data) :]

    def sync(self) -> None:
        os.fsync(self._file)


class TemporaryFiles:
    """Files in `folder`. Each is locked by its process while it lives: the kernel lets go of the
    lock when the process dies, however it dies, and so tells the living from the abandoned."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def file(self) -> Iterator[TemporaryFile]:
        """A new file, closed at the end; its name is gone then, if it still had it."""
        self._folder.mkdir(exist_ok=True)  # not before: who only reads leaves nothing behind
        path = self._folder / secrets.token_hex(16)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield TemporaryFile(path, file)
        finally:
            os.close(file)
            path.unlink(missing_ok=True)

    def remove_abandoned(self) -> None:
        """Remove the files of processes that died."""
        for path in list(self._folder.iterdir()) if self._folder.exists() else ():
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(file)

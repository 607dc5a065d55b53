"""Temporary folders of commands."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
MARK: Final = "seb-scratch"  # a file; a folder without it is somebody else's, whatever its name


@contextlib.contextmanager
def scratch_folder(prefix: str, within: Path | None = None) -> Iterator[Path]:
    """A new folder in `within` (None: TMPDIR), removed at the end. What is removed first are those
    of commands that were killed: the process holds a lock on its folder, which the kernel
    releases. Raises OSError."""
    place = Path(tempfile.gettempdir()) if within is None else within
    for abandoned in place.glob(f"{prefix}*"):
        _remove_if_abandoned(abandoned)
    made = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=place))
    locked = os.open(made, _FOLDER)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX)
        (made / MARK).touch()
        # Its name last: another command may remove what has that name and no lock.
        folder = made.rename(made.with_name(made.name.removeprefix(".")))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(locked)


def _remove_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError):  # somebody else's, or it is in use
        opened = os.open(folder, _FOLDER)
        try:
            os.stat(MARK, dir_fd=opened, follow_symlinks=False)
            if os.fstat(opened).st_uid == os.geteuid():
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(opened)

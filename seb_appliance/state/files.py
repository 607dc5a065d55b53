"""The state file and what SQLite keeps beside it, as files: moved aside, put in place, private."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

DAMAGED_KEPT: Final = 3

_BESIDE: Final = ("-wal", "-shm")


def create_private(path: Path) -> None:
    """Make an empty file that only its owner may read; one that is there is removed first.

    SQLite gives its own files beside it the same mode.
    """
    remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def copy_private(source: Path, target: Path) -> None:
    """Copy a file's bytes to `target`, which only its owner may read."""
    create_private(target)
    shutil.copyfile(source, target)


def remove(path: Path) -> None:
    """Remove a state file and what lies beside it, whatever of that exists."""
    for suffix in (*_BESIDE, ""):
        _with(path, suffix).unlink(missing_ok=True)


def move_aside(path: Path) -> Path:
    """Move the state file to `<name>.damaged-<n>`, with what lies beside it, for people to look at.

    Only the newest few are kept.
    """
    kept = sorted(_damaged_numbers(path))
    target = path.with_name(f"{path.name}.damaged-{kept[-1] + 1 if kept else 1}")
    # The WAL goes first: left behind, it would be replayed into the next file of that name.
    for suffix in (*_BESIDE, ""):
        if _with(path, suffix).exists():
            _with(path, suffix).rename(_with(target, suffix))
    for number in kept[: max(0, len(kept) + 1 - DAMAGED_KEPT)]:
        remove(path.with_name(f"{path.name}.damaged-{number}"))
    return target


def keep_revision(path: Path, revision: str) -> Path:
    """Keep the state file, which is closed, as it is before a migration; earlier such copies go."""
    for earlier in path.parent.glob(f"{path.name}.revision-*"):
        earlier.unlink()
    kept = path.with_name(f"{path.name}.revision-{revision}")
    half = path.with_name(f"{path.name}.revision-new")
    copy_private(path, half)
    half.replace(kept)
    return kept


def install(candidate: Path, path: Path) -> None:
    """Put `candidate`, which is closed, in the place of the state file, which is closed too."""
    for suffix in _BESIDE:
        _with(candidate, suffix).unlink(missing_ok=True)
        _with(path, suffix).unlink(missing_ok=True)
    candidate.replace(path)


def _damaged_numbers(path: Path) -> list[int]:
    prefix = f"{path.name}.damaged-"
    numbers = [found.name.removeprefix(prefix) for found in path.parent.glob(f"{prefix}*")]
    return sorted({int(number) for number in numbers if number.isdigit()})


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)

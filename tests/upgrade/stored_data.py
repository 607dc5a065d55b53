"""What releases left behind, unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

STORED: Final = Path(__file__).parent / "stored"


def unpack(name: str, folder: Path) -> Path:
    """`folder`, with `bucket` and `data` in it (and `states`, in mode A)."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(STORED / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder

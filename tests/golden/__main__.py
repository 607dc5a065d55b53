"""`python -m tests.golden write`: make the golden copies anew, with the code of this checkout."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.golden import buckets, surface


async def write(folder: Path) -> None:
    for name, text in (await surface.made(folder / "surface")).items():
        (surface.COPIES / name).write_text(text, encoding="utf-8")
    for mode in buckets.MODES:
        objects = await buckets.written(folder / mode, mode)
        buckets.stored_at(mode).write_bytes(buckets.pack(objects))
        told = await buckets.answers_of(folder / f"opened-{mode}", objects)
        buckets.stored_at(mode, ".json").write_text(told, encoding="utf-8")
    formats = buckets.stored_formats(objects)
    (surface.COPIES / "formats.json").write_text(formats, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        sys.exit("python -m tests.golden write")
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(write(Path(made)))

"""Writes the stored copies anew."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.golden import buckets
from tests.golden.golden import COPIES, everything


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        texts = asyncio.run(everything(Path(folder)))
        asyncio.run(buckets.write(Path(folder)))
    for name, text in texts.items():
        COPIES.joinpath(name).write_text(text + "\n", encoding="utf-8")


main()

"""Results in the form that the proof's report reads: a JSON file for each part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """As `<name>.json`, over the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['name']}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)))

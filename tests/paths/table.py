"""Reads paths.toml: the files of the four paths, and the tests that must hold them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("paths.toml")


@dataclass(frozen=True)
class Mapped:
    """A file of a path. `equivalent`: mutants that no test can kill, and why not."""

    path: str
    file: str
    tests: tuple[str, ...]
    equivalent: dict[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")


def mapped() -> list[Mapped]:
    """All files, path by path."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [
        Mapped(path, row["file"], tuple(row["tests"]), row.get("equivalent", {}))
        for path, rows in table.items()
        for row in rows
    ]

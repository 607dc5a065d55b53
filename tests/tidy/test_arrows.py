"""Imports between rooms point one way (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "seb_appliance"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Files beside the rooms: leaves that everyone may import, and the settings.
LEAVES = {
    "__init__",
    "addresses",
    "bundled",
    "children",
    "clock",
    "errors",
    "failpoints",
    "limits",
    "quantities",
    "slices",
    "start_errors",
    "supervisor",
    "traces",
}
SETTINGS = {"setting_table", "settings"}
ROOMS = {
    "api",
    "app",
    "bench",
    "broker",
    "cli",
    "client",
    "cost",
    "formats",
    "fsck",
    "keepers",
    "machine",
    "state",
    "storage",
    "ui",
}

MAY_IMPORT = {
    "leaf": {"leaf"},
    "formats": {"leaf", "formats"},
    "broker": {"leaf", "formats", "broker"},
    "storage": {"leaf", "formats", "broker", "storage"},
    "state": {"leaf", "formats", "broker", "state"},
    "fsck": {"leaf", "formats", "broker", "storage", "state", "fsck"},
    "api": {"leaf", "formats", "broker", "api"},
    "ui": {"leaf", "formats", "broker", "ui"},
    "cost": {"leaf", "cost"},
    "settings": {"leaf", "cost", "settings"},
    "machine": {
        "leaf",
        "settings",
        "cost",
        "formats",
        "broker",
        "storage",
        "state",
        "fsck",
        "machine",
    },
    "keepers": ROOMS - {"api", "app", "bench", "cli", "client"} | {"leaf", "settings"},
    "app": ROOMS - {"bench", "cli", "client"} | {"leaf", "settings"},
    "bench": {"leaf", "formats", "bench"},
    "client": {"leaf", "formats", "client"},
    "cli": {"leaf", "formats", "settings", "machine", "app", "bench", "client", "cli"},
}

# Packages that are not ours and not Python's. `formats` is what a Spark executor installs.
MAY_USE = {
    "leaf": set(),
    "formats": {"backports", "crc32c", "msgspec", "pyarrow"},
    "broker": {"crc32c", "msgspec"},
    "storage": {"backports", "boto3", "botocore", "crc32c", "msgspec", "types_boto3_s3", "urllib3"},
    "fsck": {"crc32c"},
    "state": {"aiosqlite", "alembic", "crc32c", "msgspec", "sqlalchemy"},
    "api": {"backports", "crc32c", "httptools", "litestar", "msgspec", "uvicorn"},
    "ui": {"jinja2", "litestar", "markupsafe", "msgspec"},
    "cost": {"msgspec"},
    "settings": set(),
    "machine": {"argon2", "msgspec", "opentelemetry"},
    "keepers": {"msgspec"},
    "app": {"msgspec", "rich", "uvicorn", "uvloop"},
    "client": {"msgspec"},
    "bench": {"crc32c", "hdrh", "msgspec", "uvicorn"},
    "cli": {"backports", "click", "crc32c", "hdrh", "msgspec", "rich", "uvloop", "yaml"},
}


def room_of(dotted: str) -> str:
    """The room of `seb_appliance.x.y`."""
    first = dotted.split(".")[1] if "." in dotted else "__init__"
    if first in ROOMS:
        return first
    if first in LEAVES:
        return "leaf"
    if first == "__main__":
        return "cli"
    assert first in SETTINGS, f"{first}: a file beside the rooms is a leaf, or in a room"
    return "settings"


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write the whole name of what you import"
            base = node.module or ""
            folder = PACKAGE.parent.joinpath(*base.split("."))
            for alias in node.names:
                is_module = (folder / alias.name).is_dir() or (
                    folder / f"{alias.name}.py"
                ).is_file()
                yield f"{base}.{alias.name}" if is_module else base


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_file_imports_only_what_its_room_may_know(path: Path) -> None:
    room = room_of(dotted(path))
    for name in imports(path):
        top = name.partition(".")[0]
        if top == "seb_appliance":
            assert room_of(name) in MAY_IMPORT[room], f"{room} may not import {name}"
        elif top not in sys.stdlib_module_names:
            assert top in MAY_USE[room], f"{room} may not use {top}"


def test_storage_and_state_do_not_know_each_other() -> None:
    assert "state" not in MAY_IMPORT["storage"]
    assert "storage" not in MAY_IMPORT["state"]


def test_every_folder_of_the_package_is_a_room() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders <= ROOMS

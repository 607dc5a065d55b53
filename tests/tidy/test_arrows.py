"""Imports between rooms point one way (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "seb_appliance"
MODULES = sorted(PACKAGE.rglob("*.py"))
FILES_IN_A_FOLDER_MAX = 15

# Files beside the rooms: leaves that everyone may import, and the settings.
LEAVES = {
    "__init__",
    "addresses",
    "bundled",
    "clock",
    "errors",
    "failpoints",
    "limits",
    "quantities",
    "tasks",
    "traces",
    "zstd",
}
SETTINGS = {"setting_kinds", "setting_sources", "settings"}
ROOMS = {
    "api",
    "bench",
    "broker",
    "cli",
    "client",
    "definitions",
    "formats",
    "lake",
    "ops.checks",
    "ops.cost",
    "ops.host",
    "ops.jobs",
    "ops.serve",
    "protocols",
    "state",
    "storage",
    "ui",
}
APPLIANCE = ROOMS - {"bench", "cli", "client", "definitions", "ops.serve"} | {"leaf", "settings"}

MAY_IMPORT = {
    "leaf": {"leaf"},
    "formats": {"leaf", "formats"},
    "broker": {"leaf", "formats", "broker"},
    "storage": {"leaf", "formats", "broker", "storage"},
    "state": {"leaf", "formats", "broker", "state"},
    "lake": {"leaf", "formats", "broker", "lake"},
    "api": {"leaf", "formats", "broker", "api"},
    "ui": {"leaf", "formats", "broker", "ui"},
    "protocols": {"leaf", "formats", "broker", "lake", "storage", "api", "ui", "protocols"},
    "ops.cost": {"leaf", "ops.cost"},
    "settings": {"leaf", "ops.cost", "settings"},
    "ops.host": APPLIANCE - {"api", "ops.jobs", "ui"},
    "ops.checks": APPLIANCE - {"api", "ops.jobs", "ui"},
    "ops.jobs": APPLIANCE - {"api"},
    "ops.serve": APPLIANCE | {"client", "definitions", "ops.serve"},
    "bench": {"leaf", "formats", "bench"},
    "client": {"leaf", "formats", "lake", "client"},
    "definitions": {"leaf", "formats", "client", "protocols", "definitions"},
    "cli": {
        "leaf",
        "formats",
        "settings",
        "ops.checks",
        "ops.host",
        "ops.serve",
        "protocols",
        "bench",
        "client",
        "definitions",
        "cli",
    },
}

# Packages that are not ours and not Python's. `formats` is what a Spark executor installs.
MAY_USE = {
    "leaf": {"backports", "compression"},
    "formats": {"crc32c", "msgspec", "pyarrow"},
    "broker": {"crc32c", "msgspec"},
    "lake": {"duckdb", "fsspec", "msgspec", "pyarrow"},
    "storage": {
        "boto3",
        "botocore",
        "crc32c",
        "httptools",
        "msgspec",
        "types_boto3_s3",
        "urllib3",
    },
    "state": {"aiosqlite", "alembic", "crc32c", "msgspec", "sqlalchemy"},
    "api": {"crc32c", "httptools", "litestar", "msgspec", "uvicorn"},
    "protocols": {
        "cramjam",
        "crc32c",
        "google",
        "httptools",
        "litestar",
        "msgspec",
        "opentelemetry",
        "wsproto",
    },
    "ui": {"jinja2", "litestar", "markupsafe", "msgspec"},
    "settings": set(),
    "ops.cost": {"msgspec"},
    "ops.host": {"argon2", "cryptography", "msgspec", "opentelemetry"},
    "ops.checks": {"crc32c", "msgspec"},
    "ops.jobs": {"msgspec"},
    "ops.serve": {"litestar", "msgspec", "rich", "uvicorn", "uvloop"},
    "client": {"msgspec", "pyarrow"},
    "bench": {"crc32c", "hdrh", "msgspec", "uvicorn"},
    "definitions": {"msgspec", "yaml"},
    "cli": {"click", "crc32c", "hdrh", "msgspec", "rich", "uvloop", "yaml"},
}


def room_of(dotted: str) -> str:
    """The room of `seb_appliance.x.y`."""
    first, _, rest = dotted.removeprefix("seb_appliance").lstrip(".").partition(".")
    for room in (first, f"{first}.{rest.partition('.')[0]}"):
        if room in ROOMS:
            return room
    if first in LEAVES or first in {"", "ops"}:
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


def forbidden(path: Path) -> Iterator[str]:
    """The imports of a file that its room may not have."""
    room = room_of(dotted(path))
    for name in imports(path):
        top = name.partition(".")[0]
        if top == "seb_appliance":
            if room_of(name) not in MAY_IMPORT[room]:
                yield f"{dotted(path)}: {room} may not import {name}"
        elif top not in sys.stdlib_module_names and top not in MAY_USE[room]:
            yield f"{dotted(path)}: {room} may not use {top}"


def test_a_file_imports_only_what_its_room_may_know() -> None:
    assert [found for path in MODULES for found in forbidden(path)] == []


def test_storage_and_state_do_not_know_each_other() -> None:
    assert "state" not in MAY_IMPORT["storage"]
    assert "storage" not in MAY_IMPORT["state"]


def test_every_folder_of_the_package_is_a_room() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == {room.partition(".")[0] for room in ROOMS}


def test_no_imports_form_a_circle() -> None:
    """Those for types and those inside functions count, too."""
    known = {dotted(path) for path in MODULES}
    arrows = {dotted(path): known & set(imports(path)) - {dotted(path)} for path in MODULES}
    graphlib.TopologicalSorter(arrows).prepare()  # raises CycleError, which names the circle


def test_no_folder_holds_more_files_than_one_can_look_over() -> None:
    crowded = {
        str(folder.relative_to(PACKAGE)): count
        for folder, count in Counter(path.parent for path in MODULES).items()
        if count > FILES_IN_A_FOLDER_MAX
    }
    assert crowded == {}

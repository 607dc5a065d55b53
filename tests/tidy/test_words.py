"""The words are the field's (docs/GLOSSARY.md), and nothing tells of the machine we work on."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What others say, and what we say.
OURS = {
    "message": "record",
    "queue": "topic",
    "stream": "topic",
    "channel": "topic",
    "partition": "topic",
    "master": "writer",
    "leader": "writer",
    "slave": "follower",
    "ack_id": "offset",
}
PACKAGE = sorted((ROOT / "seb_appliance").rglob("*.py"))
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MACHINE = re.compile(r"(?<![\w.:$}])/(?:[w]ork|[r]oot|[h]ome/\w+)/|(?<![\w$}])/[t]mp/\w")
REGISTRY = re.compile(r"[p]ypi\.org|[p]ythonhosted|[d]eb\.debian|[r]egistry\.npm")


def words_of(identifier: str) -> set[str]:
    parts = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", identifier)
    return {part.lower().removesuffix("s") for part in parts} | {identifier.lower()}


def public_names(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.lineno


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_public_name_uses_our_words(path: Path) -> None:
    theirs_too = "Durable Streams" in path.read_text(encoding="utf-8")  # a protocol's own word
    for name, line in public_names(path):
        if not name.startswith(("_", "on_")):  # on_…: names that a library calls
            for theirs in words_of(name) & OURS.keys() - ({"stream"} if theirs_too else set()):
                pytest.fail(f"line {line}: {name}: say {OURS[theirs]}, not {theirs}")


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_a_heading_uses_our_words(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("Durable Streams", "")
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        for word in re.findall(r"\w+", heading.lower()):
            assert word.removesuffix("s") not in OURS, heading


def tracked_texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:  # an unpacked sdist has no git
        return []
    return [
        ROOT / name
        for name in listed.stdout.split("\0")
        if name and "vendor/" not in name and "fixtures/" not in name
    ]


def test_no_file_names_a_place_of_the_machine_it_was_made_on() -> None:
    for path in tracked_texts():
        if not path.is_file():
            continue
        text = path.read_bytes().decode(errors="replace")
        for pattern in (MACHINE, REGISTRY):
            found = pattern.search(text)
            assert found is None, f"{path.relative_to(ROOT)}: {found and found[0]}"

"""The words are the field's (docs/GLOSSARY.md), and nothing tells of the machine we work on."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What others say, and what we say.
OURS = {
    "message": "record",
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


def public_names(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.lineno


def foreign_names(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    # The words of those protocols themselves.
    allowed = {"stream"} if "Durable Streams" in text else set()
    if "protocols/kafka/" in path.as_posix():
        allowed |= {"partition", "leader", "message"}
    for name, line in public_names(text):
        # on_…: names that a library calls
        if not name.startswith(("_", "on_")) and "kafka" not in name.lower():
            for word in words_of(name) & OURS.keys() - allowed:
                place = f"{path.relative_to(ROOT)}, line {line}"
                yield f"{place}: {name}: say {OURS[word]}, not {word}"


def test_a_public_name_uses_our_words() -> None:
    assert [found for path in PACKAGE for found in foreign_names(path)] == []


def foreign_headings(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8").replace("Durable Streams", "")
    if path.name.lower() == "kafka.md":
        return
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        if any(word.removesuffix("s") in OURS for word in re.findall(r"\w+", heading.lower())):
            yield f"{path.relative_to(ROOT)}: {heading}"


def test_a_heading_uses_our_words() -> None:
    assert [found for path in DOCS for found in foreign_headings(path)] == []


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

"""Files and functions are small, and contain nothing that belongs elsewhere."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PACKAGE = ROOT / "seb_appliance"
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
OF_PACKAGE = {"environment", "no docstring"}  # checks that concern only the package
LATER = re.compile(r"\b([T]ODO|[F]IXME|[X]XX|[H]ACK)\b")

Findings = dict[str, list[str]]


@pytest.fixture(scope="module")
def findings() -> Findings:
    """What is wrong, by the kind of check. Each file is parsed once: all of them take seconds."""
    found: Findings = defaultdict(list)
    for folder in ("seb_appliance", "spark", "migrations", "tests", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            of_package = path.is_relative_to(PACKAGE)
            for check, what in check_file(path):
                if of_package or check not in OF_PACKAGE:
                    found[check].append(f"{path.relative_to(ROOT)}: {what}")
    return found


def check_file(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs of a check and what it found."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if text.count("\n") > FILE_LINES_MAX:
        yield "large", f"more than {FILE_LINES_MAX} lines"
    if later := LATER.search(text):
        yield "put off", later[0]
    if not ast.get_docstring(tree):
        yield "no docstring", "say what the file is for"
    for node in ast.walk(tree):
        if isinstance(node, FUNCTION):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            # A migration lists a schema and never changes afterwards.
            if lines > FUNCTION_LINES_MAX and "versions" not in path.parts:
                yield "large", f"{node.name} has {lines} lines"
            if path.name.startswith("test_") and node.name.startswith("test_"):
                for line in sleeps(node):
                    yield "sleeps", f"line {line}: wait for the event itself"
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in {"environ", "getenv"}
            and path.name != "setting_sources.py"
        ):
            yield "environment", f"line {node.lineno}"


def sleeps(node: ast.AST) -> Iterator[int]:
    """Lines at which a test itself sleeps, except sleep(0), which yields. A server that the test
    plays may keep a pace of its own."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and ast.unparse(child).endswith("sleep(0)"):
            continue
        if isinstance(child, ast.Call) and getattr(child.func, "attr", "") == "sleep":
            yield child.lineno
        if not isinstance(child, FUNCTION):
            yield from sleeps(child)


def test_files_and_their_functions_are_small(findings: Findings) -> None:
    assert findings["large"] == []


def test_nothing_is_put_off(findings: Findings) -> None:
    assert findings["put off"] == []


def test_only_the_settings_read_the_environment(findings: Findings) -> None:
    assert findings["environment"] == []


def test_a_test_never_sleeps_to_wait(findings: Findings) -> None:
    assert findings["sleeps"] == []


def test_every_file_says_what_it_is_for(findings: Findings) -> None:
    assert findings["no docstring"] == []

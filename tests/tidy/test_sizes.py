"""Files and functions stay small, and say nothing that belongs elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PYTHON = sorted(
    path
    for folder in ("seb_appliance", "spark", "migrations", "tests", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
PACKAGE = [path for path in PYTHON if path.is_relative_to(ROOT / "seb_appliance")]
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
TESTS = [path for path in PYTHON if path.name.startswith("test_")]
LATER = re.compile(r"\b([T]ODO|[F]IXME|[X]XX|[H]ACK)\b")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def nodes(path: Path) -> Iterator[ast.AST]:
    yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_a_file_and_its_functions_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= FILE_LINES_MAX
    if "versions" in path.parts:
        return  # a migration lists a schema, and is never changed afterwards
    for node in nodes(path):
        if isinstance(node, FUNCTION):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_nothing_is_put_off(path: Path) -> None:
    assert not LATER.search(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_only_the_settings_read_the_environment(path: Path) -> None:
    if path.name == "setting_sources.py":
        return
    for node in nodes(path):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"environ", "getenv"}, f"line {node.lineno}"


def sleeps(node: ast.AST) -> Iterator[ast.Call]:
    """Calls of sleep in a test itself; a server that it plays may keep a pace of its own."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and getattr(child.func, "attr", "") == "sleep":
            yield child
        if not isinstance(child, FUNCTION):
            yield from sleeps(child)


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_a_test_never_sleeps_to_wait(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, FUNCTION) and node.name.startswith("test_"):
            for call in sleeps(node):
                yields = [getattr(argument, "value", None) for argument in call.args] == [0]
                assert yields, f"line {call.lineno}: wait for what you wait for"


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_every_file_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))

"""Tests that a page of the documentation names as `path.py::test_name`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parents[1]


def named_tests(text: str) -> list[tuple[str, str]]:
    """Path and name of each."""
    return re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)


def is_there(path: str, name: str) -> bool:
    """Whether the file `path` below tests/ has a test of this name."""
    return name in _names(path)


@cache
def _names(path: str) -> set[str]:
    file = _TESTS / path
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return set(re.findall(r"^\s*(?:async )?def (test_\w+)", text, re.MULTILINE))

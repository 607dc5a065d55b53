"""docs/ADMIN-FUNCTIONS.md: each of the 44 functions has a test, and the test exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.named_tests import is_there, named_tests

PAGE = Path(__file__).parents[2] / "docs" / "ADMIN-FUNCTIONS.md"
NUMBERS = re.findall(r"^\| (\d+) \| .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_all_functions_are_listed_in_order() -> None:
    assert list(map(int, NUMBERS)) == list(range(1, 45))


def test_each_function_names_a_test_that_exists() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for line in lines:
        if re.match(r"\| \d+ \|", line):
            tests = named_tests(line)
            assert tests, line
            assert all(is_there(f"ui/{path}", name) for path, name in tests), line

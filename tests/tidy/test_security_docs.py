"""docs/SECURITY.md answers each of the ten, and each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.named_tests import is_there, named_tests

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "SECURITY.md").read_text(encoding="utf-8")
ATTACKS_MIN = 19  # the ten, and those beside that list


def rows() -> list[tuple[str, list[tuple[str, str]]]]:
    """The rows of the tables of attacks: what is attacked, and the tests that show the answer."""
    tables = TEXT.partition("## The ten of")[2].partition("## What is not defended")[0]
    cells = re.findall(r"^\| (?!attack )(\S[^|]*) \| [^|]+ \| ([^|]+) \|$", tables, re.MULTILINE)
    return [(attack, named_tests(by)) for attack, by in cells]


def test_each_of_the_ten_has_its_row() -> None:
    named = [attack.split()[0] for attack, _ in rows() if attack.startswith("API")]
    assert named == [f"API{number}" for number in range(1, 11)]


def test_every_row_names_a_test() -> None:
    assert len(rows()) >= ATTACKS_MIN
    for attack, tests in rows():
        assert tests, attack


def test_every_test_that_is_named_exists() -> None:
    for attack, tests in rows():
        for path, test in tests:
            assert is_there(path, test), f"{attack}: {path}::{test}"

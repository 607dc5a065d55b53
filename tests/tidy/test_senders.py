"""The cookbook: each sender has a page, files that the page shows, and a test that uses them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COOKBOOK = ROOT / "docs" / "senders"
INDEX = (COOKBOOK / "README.md").read_text(encoding="utf-8")
SENDERS = sorted(path.name for path in COOKBOOK.iterdir() if path.is_dir())
TESTS = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests/senders").glob("*.py"))
SECTIONS = ["On the appliance", "At …", "Look at the result", "What may be lost or doubled"]


def test_the_index_has_a_row_for_each_sender() -> None:
    rows = re.findall(r"^\| \[[^\]]+\]\(([\w-]+)/README\.md\) \|", INDEX, re.MULTILINE)
    assert sorted(rows) == SENDERS


@pytest.mark.parametrize("sender", SENDERS)
def test_a_page_shows_the_files_that_its_test_uses(sender: str) -> None:
    page = (COOKBOOK / sender / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert [re.sub(r"^At .+", "At …", heading) for heading in headings] == SECTIONS
    files = [path for path in (COOKBOOK / sender).iterdir() if path.name != "README.md"]
    assert files
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        shown = "\n".join(f"    {line}".rstrip() for line in lines)
        assert f"\n\n{shown}\n\n" in page, file.name
        assert f'"{file.name}"' in TESTS, f"{file.name} is used by no test"
    assert f'"{sender}"' in TESTS

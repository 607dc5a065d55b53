"""The site of the documentation is whole, and works from a folder without any other host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from seb_appliance import __version__

ROOT = Path(__file__).parents[2]
SITE = ROOT / ".state" / "site" / __version__

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The text of each page by its path. MkDocs fails at a link that leads nowhere."""
    subprocess.run(["make", "docs"], cwd=ROOT, check=True, timeout=600)
    return {
        path.relative_to(SITE).as_posix(): path.read_text(encoding="utf-8")
        for path in SITE.rglob("*.html")
    }


def test_the_navigation_has_every_page_that_the_readme_lists(pages: dict[str, str]) -> None:
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[^]]+\]\(([\w-]+)\.md\)", text, re.MULTILINE)
    assert len(listed) > 30
    for name in listed:
        assert f'href="{name}.html"' in pages["index.html"], name


def test_no_page_loads_anything_from_another_host(pages: dict[str, str]) -> None:
    for path, text in pages.items():
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', text)
        assert not loaded, path


def test_the_search_has_the_words_of_the_pages(pages: dict[str, str]) -> None:
    index = (SITE / "search" / "search_index.js").read_text(encoding="utf-8")
    for word in ("linger", "TUTORIAL.html", "take_over_when_new"):
        assert word in index

"""Property tests try the same examples in every run, whichever tests ran before in the process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def examples() -> list[tuple[int, str]]:
    """What the tests' own settings make up."""
    seen: list[tuple[int, str]] = []

    @given(st.integers(), st.text())
    def note(number: int, text: str) -> None:
        seen.append((number, text))

    note()
    return seen


def test_examples_do_not_depend_on_what_was_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not settings.default.derandomize:
        pytest.skip("they were to be others")
    before = examples()
    constants = [f"n{n}, s{n} = 7{n}777, 'word {n}'" for n in range(100)]
    (tmp_path / "imported_meanwhile.py").write_text("\n".join(constants))
    monkeypatch.syspath_prepend(tmp_path)
    __import__("imported_meanwhile")
    try:
        assert examples() == before
    finally:
        del sys.modules["imported_meanwhile"]

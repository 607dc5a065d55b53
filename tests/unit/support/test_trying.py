"""What `make mutants` changes where it is, and what it has to change before it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import trying
from tests.paths.mutating import Mutant, mutants_of
from tests.paths.table import Mapped
from tests.paths.trying import codes, functions_of

SOURCE = """LIMIT = 7

class Window:
    @property
    def size(self) -> int:
        return 1

    @size.setter
    def size(self, value: int) -> None:
        self._size = (lambda: value + 2)()

    def closed(self, early: bool = False) -> bool:
        return super().closed(
            early)
"""


@pytest.fixture
def of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapped:
    (tmp_path / "file.py").write_text(SOURCE)
    monkeypatch.setattr(trying, "ROOT", tmp_path)
    return Mapped("fencing", "file.py", ())


def by_what(of: Mapped) -> dict[str, Mutant]:
    return {mutant.what: mutant for mutant in mutants_of(trying.ROOT / of.file)}


def test_a_mutant_is_in_the_outermost_function_around_it_or_runs_at_import(of: Mapped) -> None:
    found = {what: mutant.function for what, mutant in by_what(of).items()}
    named = {what: function and (function.name, function.nth) for what, function in found.items()}
    assert named == {
        "7 -> 8 in: LIMIT = 7": None,
        "return 1 -> return None": ("Window.size", 0),
        "1 -> 2 in: return 1": ("Window.size", 0),
        "left out: self._size = (lambda: value + 2)()": ("Window.size", 1),
        "value + 2 -> value - 2": ("Window.size", 1),
        "2 -> 3 in: self._size = (lambda: value + 2)()": ("Window.size", 1),
        "False -> True in: def closed(self, early: bool=False) -> bool:": None,
        "return super().closed(early) -> return None": ("Window.closed", 0),
    }


def test_a_function_gets_the_code_of_the_mutant(of: Mapped) -> None:
    both = codes(of, by_what(of)["1 -> 2 in: return 1"])
    assert both is not None
    before, after = both
    names: dict[str, type] = {}
    exec(compile(SOURCE, trying.ROOT / of.file, "exec"), names)
    functions_of([of])[before].__code__ = after
    assert names["Window"]().size == 2


@pytest.mark.parametrize(
    "what", ["7 -> 8 in: LIMIT = 7", "return super().closed(early) -> return None"]
)
def test_what_no_function_can_be_given_is_changed_at_import(of: Mapped, what: str) -> None:
    assert codes(of, by_what(of)[what]) is None


def test_a_mutant_knows_the_lines_of_the_statement_that_it_changes(of: Mapped) -> None:
    found = by_what(of)
    assert found["1 -> 2 in: return 1"].statement == range(6, 7)
    assert found["return super().closed(early) -> return None"].statement == range(13, 15)

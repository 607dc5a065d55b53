"""The mutants that `make mutants` makes, and the table of what it makes them of."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.paths.mutating import mutants_of
from tests.paths.table import ROOT, mapped

SOURCE = '''"""A file."""

def f(a: int) -> int:
    """A function."""
    assert a != 7
    if a < 1 and not a:
        raise ValueError(f"{a + 1}")
    store.reach("K1")
    a += 1
    return a
'''


def changes(tmp_path: Path) -> list[tuple[int, str]]:
    path = tmp_path / "file.py"
    path.write_text(SOURCE)
    return [(mutant.line, mutant.what) for mutant in mutants_of(path)]


def test_a_mutant_is_one_change_of_what_is_decided_and_of_nothing_that_is_only_said(
    tmp_path: Path,
) -> None:
    assert changes(tmp_path) == [
        (6, "a < 1 and (not a) -> a < 1 or not a"),
        (6, "a < 1 -> a <= 1"),
        (6, "not a -> a"),
        (6, "1 -> 2 in: if a < 1 and (not a):"),
        (7, "left out: raise ValueError(f'{a + 1}')"),
        (9, "left out: a += 1"),
        (9, "1 -> 2 in: a += 1"),
        (10, "return a -> return None"),
    ]


def test_each_mutant_is_another_source_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(SOURCE)
    sources = {mutant.source for mutant in mutants_of(path)}
    assert len(sources) == len(changes(tmp_path))
    assert ast.unparse(ast.parse(SOURCE)) not in sources
    for source in sources:
        ast.parse(source)


def test_the_table_names_files_and_tests_that_are_there() -> None:
    paths = {of.path for of in mapped()}
    assert paths == {"acknowledgement", "fencing", "recovery", "authorisation"}
    for of in mapped():
        for name in (of.file, *of.tests):
            assert (ROOT / name).is_file(), name

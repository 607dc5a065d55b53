"""The fault matrix names tests and parts that are there, and docs/PROOF.md says what is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from tests.proof.__main__ import PARTS
from tests.proof.judges import expected
from tests.proof.matrix import MATRIX, Row, as_markdown
from tests.proof.test_checker import SEEDED
from tests.proof.units import PartOfProof, Scale
from tests.proof.violations import PROPERTIES

TESTS = Path(__file__).parents[1]
PROOF = (TESTS.parent / "docs" / "PROOF.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.number)
def test_what_shows_a_row_of_the_fault_matrix_is_there(row: Row) -> None:
    parts = {part.name for part in PARTS}
    for name in row.shown_by:
        if name.startswith("part "):
            assert name.removeprefix("part ") in parts
        else:
            path, _, test = name.partition("::")
            text = (TESTS / path).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), name


def test_the_fault_matrix_is_whole() -> None:
    assert [row.number for row in MATRIX] == list(range(1, 35))


def test_the_documentation_has_the_fault_matrix() -> None:
    assert as_markdown() in PROOF


def test_the_documentation_has_the_violations_that_no_judge_of_another_project_finds() -> None:
    law_of = {seed.__name__: law for law, seed in SEEDED}
    assert set.intersection(*map(set, expected.MISSED.values())) == set(expected.UNSEEN)
    assert set().union(*expected.MISSED.values()) <= set(law_of)
    assert expected.as_markdown(law_of) in PROOF


def test_the_documentation_says_for_each_property_how_it_was_broken() -> None:
    for law, what in PROPERTIES.items():
        assert f"| {law} | {what} |" in PROOF


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_documentation_has_each_part(part: PartOfProof) -> None:
    asked = [part.asked.get(scale, "-") for scale in get_args(Scale)]
    assert f"| {' | '.join([f'`{part.name}`', part.what, *asked])} |" in PROOF

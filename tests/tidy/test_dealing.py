"""The order of tests that several processes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dealing import FOLDERS_S, deal

TESTS = [f"tests/{folder}/test_{n}" for folder in ("api", "crash", "spark", "ui") for n in range(5)]


@pytest.mark.parametrize("hands", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 7, 13, 20])
def test_each_test_is_dealt_once(hands: int, count: int) -> None:
    assert sorted(deal(TESTS[:count], hands)) == list(range(count))


def test_each_process_begins_with_a_folder_of_long_tests() -> None:
    dealt = [TESTS[i].split("/")[1] for i in deal(TESTS, 2)]
    assert dealt[:10] == ["spark"] * 5 + ["api"] * 5
    assert dealt[10:] == ["crash"] * 5 + ["ui"] * 5


def test_the_folders_of_long_tests_are_there() -> None:
    root = Path(__file__).parents[2]
    assert all((root / folder).is_dir() for folder in FOLDERS_S)

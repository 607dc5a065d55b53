"""A change of what programs and people see is made on purpose, and shows in a diff."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.golden.golden import COPIES, everything

NAMES = sorted(path.name for path in COPIES.iterdir())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return await everything(tmp_path_factory.mktemp("golden"))


def test_there_is_a_copy_of_everything(shown: dict[str, str]) -> None:
    assert sorted(shown) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_is_as_the_copy_says(shown: dict[str, str], name: str) -> None:
    copy = COPIES.joinpath(name).read_text(encoding="utf-8")
    assert shown[name] + "\n" == copy, "python -m tests.golden writes the copies anew"

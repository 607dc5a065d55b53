"""Whole buckets, made once; each test damages a copy of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.whole_bucket import Whole, make_whole


def _made(factory: pytest.TempPathFactory, name: str, mode: str, *, tidied: bool) -> Whole:
    folder = factory.mktemp(name)
    return asyncio.run(make_whole(folder, "A" if mode == "A" else "B", tidied=tidied))


@pytest.fixture(scope="session")
def made_tidied(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return _made(tmp_path_factory, "tidied", "A", tidied=True)


@pytest.fixture(scope="session")
def made_young(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return _made(tmp_path_factory, "young", "A", tidied=False)


@pytest.fixture(scope="session")
def made_claimed(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return _made(tmp_path_factory, "claimed", "B", tidied=True)


@pytest.fixture
def tidied(made_tidied: Whole, tmp_path: Path) -> Whole:
    """Mode A: segments, and no entries below the floor."""
    return made_tidied.copied(tmp_path)


@pytest.fixture
def young(made_young: Whole, tmp_path: Path) -> Whole:
    """Mode A: every entry from the first on, no segment."""
    return made_young.copied(tmp_path)


@pytest.fixture
def claimed(made_claimed: Whole, tmp_path: Path) -> Whole:
    """Mode B, with segments."""
    return made_claimed.copied(tmp_path)


@pytest.fixture(params=["young", "tidied", "claimed"])
def whole(request: pytest.FixtureRequest) -> Whole:
    """Each of them."""
    found: Whole = request.getfixturevalue(request.param)
    return found

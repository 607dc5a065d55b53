"""What the appliance shows and stores is what the golden copies say.

A change that is meant: `python -m tests.golden write`, and the difference is part of the commit.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.golden import buckets, surface
from tests.golden.surface import COPIES

SURFACES = [
    "errors.json",
    "help.txt",
    "local-files.txt",
    "metrics.txt",
    "openapi.json",
    "settings.json",
]
KINDS = {"bucket.json", "journal", "packed", "segments", "snapshots"}
KINDS_OF_MODE = {"A": KINDS, "B": {*KINDS, "bases", "claims"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return asyncio.run(surface.made(tmp_path_factory.mktemp("surface")))


def test_every_copy_is_held_by_a_test(made: dict[str, str]) -> None:
    of_buckets = {
        buckets.stored_at(mode, end).name for mode in buckets.MODES for end in (".json", ".tar.xz")
    }
    assert sorted(made) == SURFACES
    assert {path.name for path in COPIES.iterdir()} == {*made, *of_buckets, "formats.json"}


@pytest.mark.parametrize("name", SURFACES)
def test_what_users_see_is_what_they_saw(made: dict[str, str], name: str) -> None:
    stored = (COPIES / name).read_text(encoding="utf-8")
    assert made[name].splitlines() == stored.splitlines()


def stored_bucket(mode: Mode) -> buckets.Objects:
    return buckets.unpack(buckets.stored_at(mode).read_bytes())


@pytest.mark.parametrize("mode", buckets.MODES)
def test_a_stored_bucket_has_every_kind_of_object(mode: Mode) -> None:
    keys = stored_bucket(mode)
    assert {key.split("/")[1] for key in keys if key.startswith("_seb/")} == KINDS_OF_MODE[mode]
    assert [key for key in keys if key.startswith("adopted/")]


@pytest.mark.parametrize("mode", buckets.MODES)
async def test_a_stored_bucket_holds_the_same_records_and_state(mode: Mode, tmp_path: Path) -> None:
    told = await buckets.answers_of(tmp_path / "data", stored_bucket(mode))
    stored = buckets.stored_at(mode, ".json").read_text(encoding="utf-8")
    assert told.splitlines() == stored.splitlines()


async def test_its_journal_alone_gives_the_same(tmp_path: Path) -> None:
    """In mode A, where no entry was removed."""
    objects = stored_bucket("A")
    without = {key: objects[key] for key in objects if not key.startswith(buckets.SNAPSHOTS)}
    assert len(without) < len(objects)
    told = await buckets.answers_of(tmp_path / "data", without)
    stored = buckets.stored_at("A", ".json").read_text(encoding="utf-8")
    assert told.splitlines() == stored.splitlines()


@pytest.mark.parametrize("mode", buckets.MODES)
async def test_the_same_requests_store_the_same_bytes(mode: Mode, tmp_path: Path) -> None:
    written = await buckets.written(tmp_path, mode)
    assert buckets.comparable(written) == buckets.comparable(stored_bucket(mode))
    assert buckets.stored_formats(written) == (COPIES / "formats.json").read_text(encoding="utf-8")

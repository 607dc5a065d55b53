"""Today's code stores the bytes that it stored, and finds in a stored bucket what was found in it.

tests/upgrade holds what releases left behind; here the same history, and adopted objects, is also
written again. After an intended change, `python -m tests.golden` stores the buckets anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.golden import buckets

KINDS = {"bucket.json", "journal", "packed", "segments", "snapshots"}
KINDS_OF_MODE = {"A": KINDS, "B": {*KINDS, "bases", "claims"}}


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
    assert buckets.stored_formats(written) == buckets.FORMATS.read_text(encoding="utf-8")

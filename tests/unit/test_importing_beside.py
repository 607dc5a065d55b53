"""`seb import` into a bucket that an appliance has used meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seb_appliance.errors import BucketInUseError
from seb_appliance.ops.serve.go_import import ImportOptions, import_old_log
from tests.support.appliance import running_appliance
from tests.support.old_buckets import OldPlace, of_directory
from tests.unit.test_importing import (
    TIDY,
    Interrupted,
    both,
    problems,
    started,
    stopped,
    values,
)


@pytest.fixture
def old(tmp_path: Path) -> OldPlace:
    return OldPlace(tmp_path)


async def test_an_import_beside_lake_tables_passes_them_over(old: OldPlace) -> None:
    old.small("t", 2)
    await old.imported()
    for name in ("metadata/v1.metadata.json", "data/0-9-5833a2672b22d835.parquet"):
        old.put(old.bucket / "tables" / "30d8dd89-orders" / name, b"of the appliance")
    old.small("later", 3)
    told = await old.imported()
    assert (told.files, told.found) == (3, 2)


async def test_an_import_goes_on_behind_files_that_the_tidier_has_merged_since(
    old: OldPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seb_appliance.protocols.go.files.FILES_AT_ONCE", 4)
    monkeypatch.setattr("seb_appliance.ops.serve.go_import._FILES_PER_ENTRY", 4)
    old.small("t", 40)

    def stop(done: int, _of: int, what: str) -> None:
        if what.startswith("importing") and done >= 28:
            raise Interrupted

    with pytest.raises(Interrupted):
        await old.imported(stop)
    appliance = await started(old, **TIDY)  # as a service manager starts it
    imported = await values(appliance, "t")
    while old.file("t", 0).exists():
        await appliance.tidier.step()
    await stopped(appliance)
    assert 0 < len(imported) < 120
    told = await old.imported()
    assert told.records == 120 - len(imported)
    appliance = await started(old)
    assert await values(appliance, "t") == old.expected["t"]
    await stopped(appliance)
    assert await problems(old) == []


@both
async def test_an_import_with_another_data_directory_fences_nobody(
    old: OldPlace, in_place: bool
) -> None:
    old.small("t", 1)
    ours = old.own(in_place=in_place)
    stray = replace(old.own("stray", in_place=in_place), take_over_when_new=True)
    options = ImportOptions(source=of_directory(old.bucket, ours.data), copy=not in_place)
    async with running_appliance(ours.data, bucket=ours.bucket, tidier="off") as seb:
        with pytest.raises(BucketInUseError):
            await import_old_log(stray, options, lambda *_: None)
        answer = await seb.client.post("/v1/topics/ours/records", content=b"one")
        assert answer.status_code == 201

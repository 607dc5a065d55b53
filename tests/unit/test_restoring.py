"""Restoring and copying real buckets: those that an appliance wrote, in both fencing modes."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from seb_appliance import setting_sources
from seb_appliance.clock import SystemClock
from seb_appliance.errors import (
    BucketInUseError,
    ConfigurationError,
    CorruptObjectError,
    StoreUnusableError,
)
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.ops.host import restoring
from seb_appliance.ops.host.data_directory import own_data_directory
from seb_appliance.ops.host.scratch import MARK
from seb_appliance.ops.host.stores import make_store
from seb_appliance.settings import Settings
from seb_appliance.state.database import StateDatabase
from seb_appliance.storage import layout
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.recovery import copying, opening
from tests.support.appliance import RunningAppliance, running_appliance

pytestmark = pytest.mark.slow

TIDY = {"tidy_bytes": "1KiB", "tidy_young": "0ms", "tidy_after": "0ms"}


def quiet(done: int, total: int, phase: str) -> None:
    """Progress that nobody watches."""


@pytest.fixture(params=["A", "B"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mode:
    """The fencing mode of new buckets."""
    return new_buckets_in(request.param, monkeypatch)


def new_buckets_in(wanted: Mode, monkeypatch: pytest.MonkeyPatch) -> Mode:
    options = opening.StartOptions

    def made(**given: object) -> opening.StartOptions:
        return options(mode=wanted, list_rounds=3, **given)  # type: ignore[arg-type]

    monkeypatch.setattr("seb_appliance.ops.serve.assembly.StartOptions", made)
    return wanted


def of(folder: Path, name: str = "bucket") -> Settings:
    flags = {"bucket": f"file:{folder / name}", "data": str(folder / f"{name}-data")}
    return setting_sources.load(flags=flags, environment={})


@asynccontextmanager
async def appliance(
    folder: Path, name: str = "bucket", **flags: str | bool
) -> AsyncIterator[RunningAppliance]:
    where = of(folder, name)
    async with running_appliance(where.data, bucket=where.bucket, **flags) as running:
        yield running


async def produce(seb: RunningAppliance, *values: str, topic: str = "t") -> None:
    for value in values:
        answer = await seb.client.post(f"/v1/topics/{topic}/records", content=value.encode())
        assert answer.status_code == 201


async def values(seb: RunningAppliance, topic: str = "t") -> list[str]:
    answer = await seb.client.get(f"/v1/topics/{topic}/records?offset=earliest")
    return [record["value"] for record in answer.json()["records"]]


async def snapshot(seb: RunningAppliance) -> int:
    seq: int = (await seb.client.post("/v1/snapshots")).json()["seq"]
    return seq


@asynccontextmanager
async def copied(folder: Path) -> AsyncIterator[RunningAppliance]:
    """An appliance on the copy, as a new machine starts it."""
    keep_admin_key(folder, of(folder, "copy"))
    async with appliance(folder, "copy", take_over=True) as seb:
        yield seb


def keep_admin_key(folder: Path, there: Settings) -> None:
    """It is of the same appliance, so it is good there, too."""
    there.data.mkdir(exist_ok=True)
    shutil.copy(of(folder).data / "admin.key", there.data)


async def start(there: Settings, *, take_over: bool = False) -> None:
    """Open the journal as a start does, in a data directory that is new."""
    with tempfile.TemporaryDirectory() as scratch:
        database = await StateDatabase.open(Path(scratch) / "state.sqlite")
        try:
            await opening.open_journal(
                make_store(there),
                database,
                Path(scratch),
                opening.StartOptions(take_over=take_over, list_rounds=3),
                clock=SystemClock(),
                failpoints=NO_FAILPOINTS,
                random_bytes=os.urandom,
                jitter=random.random,
                progress=quiet,
            )
        finally:
            await database.close()


async def test_a_drill_rebuilds_the_state_and_leaves_nothing_behind(
    tmp_path: Path, mode: Mode
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one", "two")
        await snapshot(seb)
        await produce(seb, "three")
        position = seb.appliance.journal.position
        found = await restoring.verify(of(tmp_path), quiet)  # beside the one that writes
        await produce(seb, "four")
    assert found.rebuilt.position == position
    assert found.rebuilt.journal.mode == mode
    assert found.rebuilt.entries_replayed == 1
    assert [topic.name for topic in found.state.topics] == ["t"]
    assert not list(of(tmp_path).data.glob("restore-*"))


async def test_a_drill_removes_what_one_left_that_was_killed_and_no_more(tmp_path: Path) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    left = of(tmp_path).data / "restore-12345678"
    left.mkdir()
    (left / "state.sqlite").write_text("half")
    (left / MARK).touch()
    theirs = of(tmp_path).data / "restore-20261129"
    (theirs / "bucket" / "_seb").mkdir(parents=True)
    await restoring.verify(of(tmp_path), quiet)
    assert not left.exists()
    assert (theirs / "bucket" / "_seb").exists()


async def test_a_drill_that_fails_is_reported_as_one_that_does_not(tmp_path: Path) -> None:
    report = tmp_path / "drill.prom"
    with pytest.raises(StoreUnusableError):
        await restoring.drill(of(tmp_path), report, quiet)
    assert "\nseb_drill_success 0\n" in report.read_text()
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        await restoring.drill(of(tmp_path), report, quiet)
        seq = seb.appliance.journal.position.seq
    assert "\nseb_drill_success 1\n" in report.read_text()
    assert f"\nseb_drill_seq {seq}\n" in report.read_text()


async def test_a_restored_data_directory_is_what_the_next_start_goes_on_from(
    tmp_path: Path,
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    elsewhere = replace(of(tmp_path), data=tmp_path / "elsewhere")
    await restoring.restore(elsewhere, elsewhere.data, quiet)
    with pytest.raises(ConfigurationError, match="already holds local state"):
        await restoring.restore(elsewhere, elsewhere.data, quiet)
    keep_admin_key(tmp_path, elsewhere)
    there = {"bucket": elsewhere.bucket, "take_over": True}
    async with running_appliance(elsewhere.data, **there) as seb:
        assert seb.appliance.report.began_from == "local"
        assert await values(seb) == ["one"]


async def test_a_restore_that_broke_off_is_repeated_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    elsewhere = replace(of(tmp_path), data=tmp_path / "elsewhere")

    async def broken(*_: object) -> None:
        raise StoreUnusableError("broke off")

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "needed_objects", broken)
        with pytest.raises(StoreUnusableError, match="broke off"):
            await restoring.restore(elsewhere, elsewhere.data, quiet)
    assert [path.name for path in elsewhere.data.iterdir()] == ["lock"]
    await restoring.restore(elsewhere, elsewhere.data, quiet)
    assert sorted(path.name for path in elsewhere.data.iterdir()) == ["lock", "state.sqlite"]


async def test_a_restored_data_directory_has_no_record_keys_of_another_history(
    tmp_path: Path,
) -> None:
    source, data, old = tmp_path / "bucket", of(tmp_path).data, tmp_path / "old-data"

    async def produce_key(seb: RunningAppliance, key: str) -> None:
        answer = await seb.client.post("/v1/topics/t/records", headers={"Seb-Key": key})
        assert answer.status_code == 201, answer.text

    async def keys(seb: RunningAppliance) -> list[str]:
        answer = await seb.client.get("/v1/topics/t/keys?fresh=true")
        assert answer.status_code == 200, answer.text
        return [found["key"] for found in answer.json()["keys"]]

    async with appliance(tmp_path) as seb:
        await seb.client.put("/v1/topics/t", json={"key_index": "latest"})
        await produce_key(seb, "a")
        await asyncio.to_thread(shutil.copytree, source, tmp_path / "earlier")
        await produce_key(seb, "lost")
        assert await keys(seb) == ["a", "lost"]
    await asyncio.to_thread(shutil.rmtree, source)
    await asyncio.to_thread((tmp_path / "earlier").rename, source)
    data.rename(old)
    data.mkdir()
    shutil.copy(old / "admin.key", data)
    async with appliance(tmp_path, take_over=True) as seb:  # on another machine
        await produce_key(seb, "b")
    await asyncio.to_thread(shutil.rmtree, data)
    old.rename(data)
    (data / "state.sqlite").unlink()
    await restoring.restore(of(tmp_path), data, quiet)
    async with appliance(tmp_path, take_over=True) as seb:
        assert await keys(seb) == ["a", "b"]


async def test_nothing_is_restored_below_somebody_who_has_the_data_directory(
    tmp_path: Path,
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    elsewhere = replace(of(tmp_path), data=tmp_path / "elsewhere")
    with (
        own_data_directory(elsewhere.data),
        pytest.raises(ConfigurationError, match="another seb serve"),
    ):
        await restoring.restore(elsewhere, elsewhere.data, quiet)
    assert not (elsewhere.data / restoring.STATE_FILE).exists()


async def test_a_copy_is_a_whole_appliance_and_the_source_goes_on(
    tmp_path: Path, mode: Mode
) -> None:
    async with appliance(tmp_path, **TIDY) as seb:
        for topic in ("a", "b"):
            await produce(seb, *map(str, range(40)), topic=topic)
        await snapshot(seb)
        await seb.client.put("/v1/groups/g/offsets", json={"offsets": {"a": 7}})
        cloned = await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)
        await produce(seb, "later", topic="a")
        assert (await values(seb, "a"))[-1] == "later"
    assert cloned.copied.objects == len(cloned.restored.needed.objects)
    async with copied(tmp_path) as seb:
        for topic in ("a", "b"):
            assert await values(seb, topic) == list(map(str, range(40)))
        committed = (await seb.client.get("/v1/groups/g")).json()
        assert [(t["topic"], t["committed_offset"]) for t in committed["topics"]] == [("a", 7)]
        await produce(seb, "its own", topic="a")


async def test_going_back_to_an_entry_leaves_out_what_came_later(
    tmp_path: Path, mode: Mode
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one", "two")
        await snapshot(seb)
        await produce(seb, "three")
        seq = seb.appliance.journal.position.seq
        await produce(seb, "mistake")
        await seb.client.delete("/v1/topics/t")
        await snapshot(seb)
    async with appliance(tmp_path) as seb:  # a later writer, in mode B with a base of its own
        await produce(seb, "later", topic="u")
    await restoring.clone(of(tmp_path), of(tmp_path, "copy"), seq, quiet)
    async with copied(tmp_path) as seb:
        assert await values(seb) == ["one", "two", "three"]
        assert (await seb.client.get("/v1/topics/u")).status_code == 404
        await produce(seb, "went on")
        assert await values(seb) == ["one", "two", "three", "went on"]


@pytest.mark.parametrize("seq", [1, 3])
async def test_each_entry_can_be_gone_back_to(tmp_path: Path, mode: Mode, seq: int) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one", "two", "three")
    cloned = await restoring.clone(of(tmp_path), of(tmp_path, "copy"), seq, quiet)
    assert cloned.restored.rebuilt.position.seq == seq
    await start(of(tmp_path, "copy"), take_over=True)


async def test_an_entry_that_is_not_there_yet_is_refused(tmp_path: Path, mode: Mode) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    with pytest.raises(ConfigurationError, match="there is no entry 999"):
        await restoring.clone(of(tmp_path), of(tmp_path, "copy"), 999, quiet)
    assert not list((tmp_path / "copy").rglob("*.seb"))


async def test_an_entry_whose_objects_were_removed_is_refused(tmp_path: Path) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one", "two", "three")
        seq = seb.appliance.journal.position.seq
    entries = sorted((tmp_path / "bucket").rglob("*.seb"))
    entries[-2].unlink()
    with pytest.raises(StoreUnusableError):
        await restoring.clone(of(tmp_path), of(tmp_path, "copy"), seq, quiet)


async def test_a_copy_that_broke_off_is_never_started_and_goes_on(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, *map(str, range(20)))
        await snapshot(seb)
    for left in (3, 10, 4):  # objects that it gets to copy before it breaks off
        with monkeypatch.context() as patched:
            break_after(left, patched)
            with pytest.raises(StoreUnusableError, match="broke off"):
                await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)
        with pytest.raises(StoreUnusableError):
            await start(of(tmp_path, "copy"), take_over=True)
    cloned = await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)
    assert cloned.copied.found == 3 + 10 + 4
    async with copied(tmp_path) as seb:
        assert await values(seb) == list(map(str, range(20)))


async def test_a_copy_that_was_not_looked_at_is_never_started(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")

    async def break_off(copy: copying.BucketCopy) -> None:
        raise StoreUnusableError("broke off")

    with monkeypatch.context() as patched:
        patched.setattr(copying.BucketCopy, "finish", break_off)
        with pytest.raises(StoreUnusableError, match="broke off"):
            await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)
    with pytest.raises(StoreUnusableError):
        await start(of(tmp_path, "copy"), take_over=True)
    cloned = await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)
    assert cloned.copied.objects == 0
    await start(of(tmp_path, "copy"), take_over=True)


def break_after(left: int, patched: pytest.MonkeyPatch) -> None:
    """Who comes after `left` objects fails once those are there: an error ends the copies that are
    under way beside it, some sooner and some later."""
    copy = copying.BucketCopy._copy
    begun = ended = 0
    all_there = asyncio.Event()

    async def breaking(self: copying.BucketCopy, info: object, of: int) -> None:
        nonlocal begun, ended
        if begun == left:
            await all_there.wait()
            raise StoreUnusableError("broke off")
        begun += 1
        await copy(self, info, of)  # type: ignore[arg-type]
        ended += 1
        if ended == left:
            all_there.set()

    patched.setattr(copying.BucketCopy, "_copy", breaking)


async def test_a_copy_needs_take_over_to_be_started(tmp_path: Path, mode: Mode) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)
    with pytest.raises(BucketInUseError):
        await start(of(tmp_path, "copy"))


async def test_a_damaged_object_is_not_copied(tmp_path: Path) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "x" * 2000)
    damaged = max((tmp_path / "bucket").rglob("*.seb"))  # the newest entry
    body = bytearray(damaged.read_bytes())
    body[-20] ^= 1  # in a section, which replay does not read
    damaged.write_bytes(body)
    with pytest.raises(CorruptObjectError, match="It was not copied"):
        await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)


async def test_what_somebody_put_beside_our_objects_is_not_copied(
    tmp_path: Path, mode: Mode
) -> None:
    """Also not the bytes of an entry at another key, which would be whole."""
    async with appliance(tmp_path) as seb:
        await produce(seb, "1")
    ours = tmp_path / "bucket" / "_seb"
    strange = [ours / "journal/.DS_Store", ours / "journal/.copy.seb", ours / "segments/x"]
    for path in strange:
        path.parent.mkdir(exist_ok=True)
        shutil.copy(max(ours.rglob("*.seb")), path)
    await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)
    for path in strange:
        assert not (tmp_path / "copy" / path.relative_to(ours.parent)).exists()
    async with copied(tmp_path) as seb:
        assert await values(seb) == ["1"]


async def test_a_bucket_that_holds_something_is_no_target(tmp_path: Path) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    async with appliance(tmp_path, "copy"):
        pass
    with pytest.raises(ConfigurationError, match="already holds an appliance"):
        await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigurationError, match="has other data"):
        await restoring.clone(of(tmp_path), of(tmp_path, "theirs"), None, quiet)


async def test_a_copy_of_another_bucket_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bucket", "other"):
        async with appliance(tmp_path, name) as seb:
            await produce(seb, "one")
    with monkeypatch.context() as patched:
        break_after(1, patched)
        with pytest.raises(StoreUnusableError, match="broke off"):
            await restoring.clone(of(tmp_path, "other"), of(tmp_path, "copy"), None, quiet)
    with pytest.raises(ConfigurationError, match="holds an unfinished copy of bucket"):
        await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b'{"bucket_id": "\xff"}'])
async def test_a_mark_of_a_copy_that_cannot_be_read_is_told(tmp_path: Path, body: bytes) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    mark = tmp_path / "copy" / layout.COPY
    mark.parent.mkdir(parents=True)
    mark.write_bytes(body)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        await restoring.clone(of(tmp_path), of(tmp_path, "copy"), None, quiet)


async def test_a_place_without_an_appliance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusableError, match="there is no directory"):
        await restoring.verify(of(tmp_path), quiet)
    (tmp_path / "bucket").mkdir()
    with pytest.raises(ConfigurationError, match="is not the bucket of an appliance"):
        await restoring.verify(of(tmp_path), quiet)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/seb", "s3://b/seb"),
        ("s3://b/seb", "s3://b/seb/copy"),
        ("s3://b", "s3://b/copy"),
        ("file:here", "file:here/copy"),
    ],
)
async def test_a_copy_into_the_source_is_refused(one: str, other: str, tmp_path: Path) -> None:
    both = [
        setting_sources.load(flags={"bucket": name, "data": str(tmp_path)}, environment={})
        for name in (one, other)
    ]
    with pytest.raises(ConfigurationError, match="neither may be inside the other"):
        await restoring.clone(both[0], both[1], None, quiet)

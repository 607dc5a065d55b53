"""A finished copy is brought up to date by the same command, unless an appliance ran on it; and a
time is turned into the journal entry to go back to."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seb_appliance.broker.lake.names import earlier_metadata
from seb_appliance.broker.lake.table import LakeTable
from seb_appliance.clock import SystemClock
from seb_appliance.errors import ConfigurationError, StoreUncertainError, StoreUnusableError
from seb_appliance.formats.operations import TableSet
from seb_appliance.ops.checks.check import check
from seb_appliance.ops.checks.checkup import checkup
from seb_appliance.ops.host import restoring
from seb_appliance.ops.host.stores import make_store
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bucket_info import BucketInfo, decode_bucket_info
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.recovery import copying, opening
from seb_appliance.storage.stores.directory import DirectoryStore
from tests.unit.test_restoring import (
    appliance,
    break_after,
    copied,
    keep_admin_key,
    new_buckets_in,
    of,
    produce,
    quiet,
    snapshot,
    start,
    values,
)
from tests.unit.test_tables import Ground

pytestmark = pytest.mark.slow


@pytest.fixture(params=["A", "B"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mode:
    """The fencing mode of new buckets."""
    return new_buckets_in(request.param, monkeypatch)


async def clone(folder: Path) -> restoring.Cloned:
    return await restoring.clone(of(folder), of(folder, "copy"), None, quiet)


async def clone_breaks_off(tmp_path: Path, patched: pytest.MonkeyPatch) -> None:
    break_after(2, patched)
    with pytest.raises(StoreUnusableError, match="broke off"):
        await clone(tmp_path)


async def test_a_copy_is_brought_up_to_date_by_the_same_command(tmp_path: Path, mode: Mode) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one", "two")
        first = await clone(tmp_path)
        await produce(seb, "three")
        await snapshot(seb)
    async with appliance(tmp_path) as seb:  # with another epoch
        await produce(seb, "four")
        position = seb.appliance.journal.position
        second = await clone(tmp_path)
    assert second.copied.found >= first.copied.objects
    assert second.restored.rebuilt.position == position
    async with copied(tmp_path) as seb:
        assert await values(seb) == ["one", "two", "three", "four"]


async def test_a_copy_that_is_up_to_date_stays_so(tmp_path: Path, mode: Mode) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    await clone(tmp_path)
    assert (await clone(tmp_path)).copied.objects == 0
    await start(of(tmp_path, "copy"), take_over=True)


async def test_a_copy_on_which_an_appliance_ran_is_left_alone(tmp_path: Path, mode: Mode) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        await clone(tmp_path)
        async with copied(tmp_path) as other:
            await produce(other, "theirs")
        await produce(seb, "two")
        with pytest.raises(ConfigurationError, match="an appliance was started on it"):
            await clone(tmp_path)
    async with copied(tmp_path) as other:
        assert await values(other) == ["one", "theirs"]


@pytest.mark.parametrize(
    ("where", "step"),
    [
        (restoring, "_end_of_earlier_copy"),
        (copying.BucketCopy, "_refuse_later_entries"),  # after `bucket.json` was taken away
    ],
)
async def test_a_copy_on_which_an_appliance_is_started_meanwhile_is_left_alone(
    tmp_path: Path, mode: Mode, where: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = getattr(where, step)

    async def then_start(*given: Any) -> Any:
        found = await looked(*given)
        with monkeypatch.context() as patched:  # as a start that began a moment before
            patched.setattr(opening, "read_bucket_info", known)
            patched.setattr(opening, "refuse_unfinished_copy", nothing)
            async with copied(tmp_path) as other:
                await produce(other, "theirs")
        return found

    async def known(_store: object) -> BucketInfo:
        return info

    async def nothing(_store: object) -> None: ...

    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        await clone(tmp_path)
    info = decode_bucket_info((tmp_path / "copy" / layout.BUCKET).read_bytes())
    async with appliance(tmp_path) as seb:  # with another epoch
        await produce(seb, "two", "three")
        with monkeypatch.context() as patched:
            patched.setattr(where, step, then_start)
            with pytest.raises(ConfigurationError, match="an appliance was started on it"):
                await clone(tmp_path)
    async with copied(tmp_path) as other:
        assert await values(other) == ["one", "theirs"]


async def test_a_copy_that_has_what_its_source_lost_is_left_alone(
    tmp_path: Path, mode: Mode
) -> None:
    source = tmp_path / "bucket"
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        await asyncio.to_thread(shutil.copytree, source, tmp_path / "earlier")
        await produce(seb, "two")
        await clone(tmp_path)
    await asyncio.to_thread(shutil.rmtree, source)
    await asyncio.to_thread((tmp_path / "earlier").rename, source)
    await asyncio.to_thread((tmp_path / "bucket-data" / "state.sqlite").unlink)
    async with appliance(tmp_path) as seb:
        await produce(seb, "another", "and another")
        with pytest.raises(ConfigurationError, match="its history is another one now"):
            await clone(tmp_path)
    async with copied(tmp_path) as other:
        assert await values(other) == ["one", "two"]


async def test_a_copy_has_the_tables_also_what_the_log_has_no_more(tmp_path: Path) -> None:
    async with appliance(tmp_path, tidier="off") as seb:
        here = Ground(seb, make_store(of(tmp_path)))
        await here.make()
        await here.commit("a", "b")
        await here.seb.client.post("/v1/topics/orders/trim", json={"before": 2})
        await here.commit("c")
        await clone(tmp_path)
        await here.commit("d")
        await clone(tmp_path)
    keep_admin_key(tmp_path, of(tmp_path, "copy"))
    async with appliance(tmp_path, "copy", take_over=True, tidier="off") as seb:
        there = Ground(seb, make_store(of(tmp_path, "copy")))
        await there.settle()
        assert await there.rows() == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
        head = seb.appliance.broker.tables.all()[0].head
        printed = [tmp_path / "copy" / head.key_of(name) for name, _ in earlier_metadata(head)]
        assert printed
        assert all(path.exists() for path in printed)


async def test_a_copy_tells_how_many_files_of_tables_are_gone(tmp_path: Path) -> None:
    async with appliance(tmp_path, tidier="off") as seb:
        here = Ground(seb, make_store(of(tmp_path)))
        await here.make()
        await here.commit("a")
        (file,) = (tmp_path / "bucket").glob("tables/*/data/*")
        file.unlink()
        made = await clone(tmp_path)
    assert made.restored.needed.table_files_gone == 1


@pytest.mark.parametrize("location", ["", "../", "_seb/journal/", "tables/../"])
async def test_a_table_whose_place_somebody_made_up_is_not_looked_for(
    tmp_path: Path, location: str
) -> None:
    event = TableSet(
        table_id="0" * 16,
        topic_id=1,
        name="t",
        location=location,
        address="file:there",
        formats=("iceberg",),
        columns=(),
    )
    store = RetryingStore(DirectoryStore(tmp_path), SystemClock(), random.random)
    await store.put("_seb/journal/1", b"1")
    assert await copying._of_tables(store, [LakeTable.made(event, 1)]) == ([], 0)
    await store.close()


async def test_an_entry_that_was_copied_without_an_answer_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = DirectoryStore.create
    lost = []

    async def without_answer(self: DirectoryStore, key: str, body: bytes) -> None:
        await create(self, key, body)
        if key.startswith(layout.JOURNAL) and not lost:
            lost.append(key)
            raise StoreUncertainError("no answer", key=key)

    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        with monkeypatch.context() as patched:
            patched.setattr(DirectoryStore, "create", without_answer)
            await clone(tmp_path)
    assert lost
    async with copied(tmp_path) as seb:
        assert await values(seb) == ["one"]


async def test_a_bucket_is_not_copied_into_itself_by_another_name(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
    (tmp_path / "copy").symlink_to(tmp_path / "bucket")
    monkeypatch.setattr(restoring, "_require_apart", lambda *_: None)  # as of two endpoints
    with pytest.raises(ConfigurationError, match="are one bucket"):
        await clone(tmp_path)
    async with appliance(tmp_path) as seb:
        assert await values(seb) == ["one"]


async def test_a_copy_is_not_started_while_it_is_brought_up_to_date(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        await clone(tmp_path)
        await produce(seb, "two")

    async def break_off(copy: copying.BucketCopy) -> None:
        raise StoreUnusableError("broke off")

    with monkeypatch.context() as patched:
        patched.setattr(copying.BucketCopy, "finish", break_off)
        with pytest.raises(StoreUnusableError, match="broke off"):
            await clone(tmp_path)
    with pytest.raises(StoreUnusableError):
        await start(of(tmp_path, "copy"), take_over=True)
    await clone(tmp_path)
    async with copied(tmp_path) as seb:
        assert await values(seb) == ["one", "two"]


@pytest.mark.parametrize("left", [1, 3])
async def test_the_earlier_copy_is_there_when_the_source_is_lost_while_it_is_brought_up_to_date(
    tmp_path: Path, mode: Mode, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one", "two")
        until_seq = (await clone(tmp_path)).restored.rebuilt.position.seq
        await produce(seb, *"3456789")
        for _ in range(2):  # the second one continues the first
            with monkeypatch.context() as patched:
                break_after(left, patched)
                with pytest.raises(StoreUnusableError, match="broke off"):
                    await clone(tmp_path)
    await asyncio.to_thread(shutil.rmtree, tmp_path / "bucket")
    half = of(tmp_path, "copy")
    with pytest.raises(StoreUnusableError, match=f"seb restore --until-seq {until_seq} --into"):
        await start(half, take_over=True)
    await restoring.clone(half, of(tmp_path, "again"), until_seq, quiet)
    keep_admin_key(tmp_path, of(tmp_path, "again"))
    async with appliance(tmp_path, "again", take_over=True) as seb:
        assert await values(seb) == ["one", "two"]


async def test_the_entry_before_a_time_is_found(tmp_path: Path, mode: Mode) -> None:
    seqs, times = [], []
    for _ in range(3):  # three epochs
        async with appliance(tmp_path) as seb:
            await produce(seb, "one", "two")
            position = seb.appliance.journal.position
            seqs.append(position.seq)
            times.append(position.created_us)
            while SystemClock().wall_us() <= position.created_us:
                await asyncio.sleep(0)
    for seq, created_us in zip(seqs, times, strict=True):
        assert await restoring.entry_before(of(tmp_path), created_us + 1) == seq
        assert await restoring.entry_before(of(tmp_path), created_us) == seq - 1
    with pytest.raises(ConfigurationError, match="no entry in the bucket is older than"):
        await restoring.entry_before(of(tmp_path), 1)


async def test_going_back_that_was_killed_at_its_last_step_goes_on(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        until_seq = seb.appliance.journal.position.seq
        await produce(seb, "two")
    with monkeypatch.context() as patched:
        patched.setattr(DirectoryStore, "delete", _killed_at(layout.COPY))
        with pytest.raises(StoreUnusableError, match="killed"):
            await restoring.clone(of(tmp_path), of(tmp_path, "copy"), until_seq, quiet)
    with pytest.raises(StoreUnusableError, match="Run the same copy again"):
        await start(of(tmp_path, "copy"), take_over=True)
    await restoring.clone(of(tmp_path), of(tmp_path, "copy"), until_seq, quiet)
    async with copied(tmp_path) as seb:
        assert await values(seb) == ["one"]


def _killed_at(last: str) -> Any:
    delete = DirectoryStore.delete

    async def deleting(store: DirectoryStore, key: str) -> None:
        if key == last:
            raise StoreUnusableError("killed")
        await delete(store, key)

    return deleting


async def test_a_copy_that_ends_leaves_the_mark_of_a_later_one(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        finish = copying.BucketCopy.finish

        async def later_one_first(copy: copying.BucketCopy) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(copying.BucketCopy, "finish", finish)
                await produce(seb, *"23456789")
                await clone_breaks_off(tmp_path, patched)
            await finish(copy)

        with monkeypatch.context() as patched:
            patched.setattr(copying.BucketCopy, "finish", later_one_first)
            with pytest.raises(ConfigurationError, match="another copy into it has begun"):
                await clone(tmp_path)
        with pytest.raises(StoreUnusableError, match="unfinished copy"):
            await start(of(tmp_path, "copy"), take_over=True)
        await clone(tmp_path)
    async with copied(tmp_path) as seb:
        assert await values(seb) == ["one", *"23456789"]


async def test_a_copy_goes_on_with_what_another_one_has_begun_a_moment_before(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        await clone(tmp_path)
        await produce(seb, *"23456789")
        looked = restoring._end_of_earlier_copy

        async def then_another(*given: Any) -> int | None:
            found = await looked(*given)
            with monkeypatch.context() as patched:
                patched.setattr(restoring, "_end_of_earlier_copy", looked)
                await clone_breaks_off(tmp_path, patched)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(restoring, "_end_of_earlier_copy", then_another)
            await clone(tmp_path)
    async with copied(tmp_path) as seb:
        assert await values(seb) == ["one", *"23456789"]


async def test_a_copy_that_is_brought_up_to_date_is_taken_for_no_whole_bucket(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with appliance(tmp_path) as seb:
        await produce(seb, "one")
        await clone(tmp_path)
        await produce(seb, *"23456789")
        with monkeypatch.context() as patched:
            await clone_breaks_off(tmp_path, patched)
    half = of(tmp_path, "copy")
    looks = (
        restoring.verify(half, quiet),
        restoring.restore(half, half.data, quiet),
        restoring.clone(half, of(tmp_path, "again"), None, quiet),
        restoring.entry_before(half, 1 << 60),
        check(half, quiet, bucket_only=True),
    )
    for look in looks:
        with pytest.raises(StoreUnusableError, match="Run the same copy again"):
            await look
    told, exit_code = await checkup(half)
    assert "unfinished copy" in told["verdict"]
    assert exit_code == StoreUnusableError.exit_code

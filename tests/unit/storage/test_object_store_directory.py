"""The directory store: what a crash leaves, what keys may name, several processes on one folder."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.errors import (
    CorruptObjectError,
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUncertainError,
)
from seb_appliance.storage.stores import directory
from seb_appliance.storage.stores.directory import DirectoryStore
from tests.support.stores import race

_CREATE_AND_DIE = """\
import asyncio, sys
from pathlib import Path
from seb_appliance.failpoints import Failpoints
from seb_appliance.storage.stores.directory import DirectoryStore
store = DirectoryStore(Path(sys.argv[1]), Failpoints(sys.argv[2]))
asyncio.run(getattr(store, sys.argv[3])("journal/1", b"0123456789"))
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    opened = DirectoryStore(tmp_path)
    yield opened
    await opened.close()


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def write_and_die(folder: Path, failpoint: str, method: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _CREATE_AND_DIE, folder, f"{failpoint}:kill", method], check=False
    )
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("method", ["create", "put"])
@pytest.mark.parametrize(("failpoint", "stored"), [("K4", False), ("K5", False), ("K6", True)])
async def test_a_process_killed_while_it_writes_leaves_all_of_the_object_or_nothing(
    tmp_path: Path, failpoint: str, stored: bool, method: str
) -> None:
    write_and_die(tmp_path, failpoint, method)
    store = DirectoryStore(tmp_path)
    try:
        if stored:
            assert await store.get("journal/1") == b"0123456789"
        else:
            assert await store.list_after("") == []
            await store.create("journal/1", b"again")
    finally:
        await store.close()
    assert files_under(tmp_path) == ["journal/1"]


async def test_temporary_files_of_a_crash_are_not_listed_and_go_with_the_next_open(
    tmp_path: Path, store: DirectoryStore
) -> None:
    write_and_die(tmp_path, "K5", "create")
    assert len(files_under(tmp_path)) == 1
    assert await store.list_after("") == []
    await DirectoryStore(tmp_path).close()
    assert files_under(tmp_path) == []


async def test_opening_leaves_the_temporary_file_of_a_living_process_alone(
    tmp_path: Path, store: DirectoryStore
) -> None:
    with directory._temporary_file(tmp_path / directory.TEMPORARY_FOLDER) as (temporary, _):
        await DirectoryStore(tmp_path).close()
        assert temporary.exists()
    assert not temporary.exists()


async def test_a_write_whose_temporary_file_is_taken_away_is_uncertain_and_can_be_repeated(
    tmp_path: Path, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_after_removal(source: Path, target: Path) -> None:
        source.unlink()
        link(source, target)

    monkeypatch.setattr(os, "link", link_after_removal)
    with pytest.raises(StoreUncertainError):
        await store.create("journal/1", b"bytes")
    monkeypatch.setattr(os, "link", link)
    await store.create("journal/1", b"bytes")
    assert await store.get("journal/1") == b"bytes"


async def test_a_folder_that_is_taken_away_is_made_again(
    tmp_path: Path, store: DirectoryStore
) -> None:
    await store.create("journal/1", b"bytes")
    (tmp_path / "journal/1").unlink()
    (tmp_path / "journal").rmdir()
    with pytest.raises(StoreUncertainError):
        await store.create("journal/1", b"bytes")
    await store.create("journal/1", b"bytes")
    assert await store.get("journal/1") == b"bytes"


async def test_nothing_is_asked_of_a_folder_that_took_the_place_of_the_bucket(
    tmp_path: Path,
) -> None:
    root, away = tmp_path / "bucket", tmp_path / "away"
    store = DirectoryStore(root)
    try:
        await store.create("journal/1", b"bytes")
        root.rename(away)
        for makes in (False, True):  # as when a file system is unmounted
            if makes:
                root.mkdir()
            for request in (
                store.create("journal/2", b"bytes"),
                store.get("journal/1"),
                store.list_after(""),
            ):
                with pytest.raises(StoreUncertainError, match="unmounted or moved"):
                    await request
        assert files_under(root) == []
        root.rmdir()
        away.rename(root)
        await store.create("journal/2", b"bytes")
        assert files_under(root) == ["journal/1", "journal/2"]
    finally:
        await store.close()


@pytest.mark.parametrize("failing", ["fsync of the file", "fsync of the folder"])
async def test_nothing_is_said_to_be_stored_unless_it_was_synced(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    await store.create("journal/0", b"")  # so that the folder is there
    fsync, calls = os.fsync, []

    def failing_fsync(file: int) -> None:
        calls.append(file)
        if len(calls) == (1 if failing == "fsync of the file" else 2):
            raise OSError(errno.EIO, "Input/output error")
        fsync(file)

    monkeypatch.setattr(os, "fsync", failing_fsync)
    with pytest.raises(StoreUncertainError):
        await store.create("journal/1", b"bytes")
    if failing == "fsync of the folder":
        # It has its name, but a power cut may take it back: only a synced answer may say so.
        calls[:] = [0]
        with pytest.raises(StoreUncertainError):
            await store.create("journal/1", b"bytes")
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(ObjectExistsError):
            await store.create("journal/1", b"bytes")


@pytest.mark.parametrize(
    ("number", "meaning"),
    [
        (errno.ENOSPC, StoreUncertainError),
        (errno.EDQUOT, StoreUncertainError),
        (errno.EIO, StoreUncertainError),
        (errno.EROFS, StoreDeniedError),
        (errno.EACCES, StoreDeniedError),
    ],
)
async def test_a_disk_that_refuses_is_told_by_what_can_be_done(
    tmp_path: Path,
    store: DirectoryStore,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    meaning: type[Exception],
) -> None:
    def failing_write(file: int, data: memoryview) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", failing_write)
    with pytest.raises(meaning, match=os.strerror(number)):
        await store.create("journal/1", b"bytes")
    monkeypatch.undo()
    assert files_under(tmp_path) == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        ".",
        "..",
        "../object",
        "a/../../object",
        "a/./b",
        "a//b",
        "/etc/passwd",
        "a/",
        "a\0b",
        ".tmp/object",
    ],
)
async def test_a_key_that_names_no_file_below_the_folder_is_refused(
    tmp_path: Path, store: DirectoryStore, key: str
) -> None:
    for request in (store.create(key, b""), store.put(key, b""), store.get(key),
                    store.get_range(key, 0, 1), store.head(key), store.delete(key)):  # fmt: skip
        with pytest.raises(ValueError, match="key"):
            await request
    assert files_under(tmp_path) == []


@pytest.mark.parametrize("prefix", ["../", "/", "a/../", "a\0", "/etc/"])
async def test_a_prefix_that_leaves_the_folder_is_refused(
    store: DirectoryStore, prefix: str
) -> None:
    with pytest.raises(ValueError, match="key"):
        await store.list_after(prefix)


async def test_symbolic_links_are_neither_followed_nor_listed(
    tmp_path: Path, store: DirectoryStore
) -> None:
    outside = tmp_path.parent / "outside"
    outside.write_bytes(b"secret")
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(ObjectMissingError):
        await store.get("link")
    assert await store.list_after("") == []


async def test_folders_that_have_become_empty_do_not_end_a_listing(store: DirectoryStore) -> None:
    keys = [f"{number:02d}/object" for number in range(30)]
    for key in keys:
        await store.create(key, b"")
    kept = keys[7::8]
    for key in set(keys) - set(kept):
        await store.delete(key)
    first = [info.key for info in await store.list_after("", limit=2)]
    assert first == kept[:2]
    assert [info.key for info in await store.list_after("", first[-1], limit=2)] == kept[2:]


async def test_two_stores_on_one_folder_race_like_two_processes(
    tmp_path: Path, store: DirectoryStore
) -> None:
    other = DirectoryStore(tmp_path)
    try:
        keys = [f"new/{number}/object" for number in range(20)]
        winners = await race([store, other, store, other], keys)
    finally:
        await other.close()
    assert [len(each) for each in winners.values()] == [1] * 20
    assert len(await store.list_after("new/")) == 20


async def test_the_folder_and_its_parents_are_made(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "not/yet/there")
    try:
        await store.create("object", b"")
    finally:
        await store.close()
    assert files_under(tmp_path) == ["not/yet/there/object"]
    assert store.description == f"file:{tmp_path}/not/yet/there"
    assert store.durability == "disk"


async def test_requests_run_beside_each_other(store: DirectoryStore) -> None:
    body = b"x" * 100_000
    await asyncio.gather(*(store.create(f"many/{number}", body) for number in range(50)))
    parts = await asyncio.gather(*(store.get_range(f"many/{n}", 5, 10) for n in range(50)))
    assert {part.data for part in parts} == {b"x" * 10}


async def test_a_file_that_is_larger_than_any_of_ours_is_not_read(
    store: DirectoryStore, tmp_path: Path
) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(limits.OBJECT_BYTES_MAX + 1)
    with pytest.raises(CorruptObjectError, match="none of ours has more"):
        await store.get("large")
    assert (await store.get_range("large", 0, 4)).data == bytes(4)


async def test_a_start_removes_only_temporary_files_and_waits_for_no_pipe(tmp_path: Path) -> None:
    """A bucket may be shared: what lies in the folder of temporary files, or behind a link in its
    place, may be somebody else's."""
    root, theirs = tmp_path / "bucket", tmp_path / "theirs"
    (root / ".tmp").mkdir(parents=True)
    theirs.mkdir()
    for folder in (root / ".tmp", theirs):
        (folder / ("0" * 32)).touch()
        (folder / "letter.txt").touch()
        os.mkfifo(folder / ("1" * 32))
        (folder / ("2" * 32)).symlink_to(tmp_path)
    async with asyncio.timeout(10):
        await (await asyncio.to_thread(DirectoryStore, root)).close()
    assert not (root / ".tmp" / ("0" * 32)).exists()
    assert (root / ".tmp" / "letter.txt").exists()
    shutil.rmtree(root / ".tmp")
    (root / ".tmp").symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic link"):
        DirectoryStore(root)
    assert len(list(theirs.iterdir())) == 4


async def test_a_pipe_is_no_object_and_is_not_waited_for(
    store: DirectoryStore, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with asyncio.timeout(10):
        with pytest.raises(ObjectMissingError):
            await store.get("pipe")

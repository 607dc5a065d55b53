"""A disk with bucket and data directory on it that gets full, and one that the kernel makes
read-only after an error, while records are produced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from seb_appliance.storage.stores.directory import DirectoryStore
from tests.crash.arena import Arena, closing
from tests.support.load import Connection
from tests.support.process import Bucket, SebProcess

pytestmark = [pytest.mark.slow, pytest.mark.alone]
SIZE = "48M"


class Disk:
    """An ext4 file system of its own, at `folder`."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image, self.folder = image, folder

    def mount(self) -> None:
        """Skips the test where that is not possible."""
        options = ("-o", "loop,errors=remount-ro")
        if _fails("mount", *options, str(self.image), str(self.folder)):
            pytest.skip("needs root and a loop device to mount a disk")

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.folder], check=True)

    def fail(self) -> None:
        """As after an error of the device: read-only until it is mounted again."""
        number = self.folder.stat().st_dev
        device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("1")


def _fails(*command: str) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode != 0
    except FileNotFoundError:
        return True


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    if _fails("truncate", "-s", SIZE, str(image)) or _fails("mkfs.ext4", "-q", str(image)):
        pytest.skip("there is no mkfs.ext4")
    made = Disk(image, folder)
    made.mount()
    try:
        yield made
    finally:
        made.unmount()


@contextlib.asynccontextmanager
async def arena_on(disk: Disk) -> AsyncIterator[Arena]:
    """What the processes print is elsewhere."""
    bucket, data = disk.folder / "bucket", disk.folder / "data"
    data.mkdir()
    (disk.image.parent / "data").symlink_to(data)
    arena = Arena("A", disk.image.parent, Bucket.directory(bucket), DirectoryStore(bucket))
    async with closing(arena):
        yield arena


def fill(path: Path) -> None:
    """To the last byte of its disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


async def started(arena: Arena) -> SebProcess:
    seb = arena.start("data", "--ack-timeout", "2s")
    await seb.ready()
    arena.serve_from(seb)
    return seb


async def says(seb: SebProcess, *reasons: str) -> None:
    """/readyz and the log give these reasons, and records are read as before."""
    connection = Connection(seb.port, seb.admin_key)
    async with asyncio.timeout(60):
        while True:
            answer = await connection.request("GET", "/readyz")
            told = answer.json().get("detail", "")
            if all(reason in told and reason in seb.shown for reason in reasons):
                break
            await asyncio.sleep(0.05)
    assert (await connection.request("GET", "/v1/topics/orders/records?offset=0")).status == 200
    connection.close()


async def test_a_full_disk_under_everything_loses_nothing_and_goes_on_with_room(
    disk: Disk,
) -> None:
    async with arena_on(disk) as arena:
        seb = await started(arena)
        await arena.begin(seb)
        ballast = disk.folder / "ballast"
        fill(ballast)
        await says(seb, "the bucket has been failing for", "No space left on device")
        ballast.unlink()
        await arena.load.until_acked(20)
        await seb.ready()
        await arena.verdict(seb)
        assert "the bucket answers again" in seb.shown
        assert "Traceback" not in seb.shown


async def test_a_disk_that_becomes_read_only_loses_nothing_and_the_next_start_goes_on(
    disk: Disk,
) -> None:
    async with arena_on(disk) as arena:
        seb = await started(arena)
        await arena.begin(seb)
        disk.fail()
        await says(seb, "the bucket has been failing for", "Read-only file system")
        assert "Traceback" not in seb.shown
        seb.kill()
        await arena.store.close()  # an open one keeps the file system, which stays as it is
        disk.unmount()
        disk.mount()
        arena.store = DirectoryStore(disk.folder / "bucket")
        again = await started(arena)
        await arena.load.until_acked(20)
        await arena.verdict(again)

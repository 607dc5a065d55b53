"""Rows of the fault matrix that are the machine's: disks, clocks, memory, ports. Several in one
run, because each start of a process costs seconds."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.ground import START_S, Ground, ground
from tests.proof.preloaded import STEP_CACHED_S, NotInstalledError, failing_writes, jumping_clock
from tests.support.faultproxy import Rule
from tests.support.load import Connection, pass_time

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    # Connections to processes that were killed are dropped, not closed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


async def until_ready_is(here: Ground, status: int) -> None:
    connection = Connection(here.seb.port)
    async with asyncio.timeout(30):
        while (await connection.request("GET", "/readyz")).status != status:
            await pass_time(0.05)
    connection.close()


async def bucket_is_deleted(here: Ground) -> None:
    """Row 12."""
    assert here.arena.proxy is not None
    here.arena.proxy.add(Rule("status", code=404, error="NoSuchBucket"))
    await until_ready_is(here, 503)
    here.arena.proxy.clear()
    await here.crowd.until_acked(10)


async def port_is_closed(here: Ground) -> None:
    """Row 33."""
    proxy = here.arena.proxy
    assert proxy is not None
    port = proxy.port
    await proxy.stop()
    await until_ready_is(here, 503)
    await proxy.start(port)
    await here.crowd.until_acked(10)


async def stands_still(here: Ground) -> None:
    """Row 34."""
    await here.pause(5.0)
    await here.crowd.until_acked(10)


async def memory_is_used_up(here: Ground) -> None:
    """Row 21: hardly more than it has now, and then bodies of a megabyte, at the same time."""
    pid = here.seb.process.pid
    here.may_fail.add(here.seb.port)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 24 * 2**20
    resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
    crowd = [Connection(here.seb.port, here.crowd.doors.key) for _ in range(64)]
    path, body = "/v1/topics/large/records", b"x" * 1_000_000
    await asyncio.gather(
        *(one.request("POST", path, body) for one in crowd), return_exceptions=True
    )
    for one in crowd:
        one.close()
    if here.seb.running:
        here.seb.kill()
    await here.restart(fresh=False)
    await here.crowd.until_acked(10)


async def test_a_bad_hour_of_a_machine_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with ground("A", tmp_path / "ground", "machine", ack_timeout="2s") as here:
        await here.begin()
        for trouble in (bucket_is_deleted, port_is_closed, stands_still, memory_is_used_up):
            await trouble(here)
        await here.verdict()


def with_environment(here: Ground, more: dict[str, str]) -> None:
    """For processes that start from now on."""
    bucket = here.arena.bucket
    here.arena.bucket = replace(bucket, environment={**bucket.environment, **more})


async def test_a_clock_that_jumps_moves_no_offset_and_no_record_back(tmp_path: Path) -> None:
    try:
        clock = jumping_clock(tmp_path / "step")
    except NotInstalledError as error:
        pytest.skip(str(error))
    async with ground("A", tmp_path / "ground", "clock") as here:
        with_environment(here, clock)
        await here.begin()
        for step in ("-1h", "+10y", "+0"):
            (tmp_path / "step").write_text(step + "\n")
            seen_s = time.monotonic() + 2 * STEP_CACHED_S
            while time.monotonic() < seen_s:
                await here.crowd.until_acked(30)
        records = (await here.asked("GET", "/v1/topics/orders/records?max_records=10000"))[
            "records"
        ]
        times = [record["timestamp"] for record in records]
        assert times == sorted(times)
        # The bucket's Date outvotes a clock that jumps.
        assert int(times[-1][:4]) - int(times[0][:4]) in (0, 1), (times[0], times[-1])
        await here.verdict()


async def test_errors_under_sqlite_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """A process that ends because of them is started again, as systemd does."""
    try:
        faults = failing_writes(0.02)
    except NotInstalledError as error:
        pytest.skip(str(error))
    async with ground("A", tmp_path / "ground", "sqlite") as here:
        await here.begin()
        healthy = here.arena.bucket
        for _ in range(3):
            here.seb.kill()
            with_environment(here, faults)
            with contextlib.suppress(AssertionError):  # it did not start, or it ended
                await here.restart(fresh=False)
                await here.crowd.until_acked(40, within_s=10)
            here.may_fail.add(here.seb.port)
            here.seb.kill()
            here.arena.bucket = healthy
            await here.restart(fresh=False)
            await here.crowd.until_acked(10)
        await here.verdict()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A disk of its own at `folder`."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs to mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """To the last byte of its disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65536)


async def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Cache and state lie on it. It fills from outside, while producers go on; with room again the
    appliance, or the next one, goes on."""
    async with ground("A", tmp_path / "ground", "disk") as here:
        data = tmp_path / "ground" / "first"
        with small_disk(data, "24m"):
            await here.begin()
            ballast = data / "ballast"
            fill(ballast)
            await pass_time(3.0)
            print(here.crowd.acked, here.seb.running, dict(here.crowd.answers))
            ballast.unlink()
            if not here.seb.running:
                await here.restart(fresh=False)
            await here.seb.ready()  # SQLite, which had no room, follows again
            await here.crowd.until_acked(20, within_s=START_S)
            await here.verdict()

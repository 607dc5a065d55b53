"""Real processes on a bucket into which somebody else wrote, or beside what somebody else uses."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from seb_appliance import zstd
from tests.support.process import Bucket, SebProcess, seb_process


def names_markup(folder: Path) -> None:
    """A snapshot with a view whose name is markup of Rich, and a command for the terminal."""
    [snapshot] = (folder / "snapshots").iterdir()
    state = folder.parent / "state.sqlite"
    state.write_bytes(zstd.decompress(snapshot.read_bytes()))
    with closing(sqlite3.connect(state)) as connection:
        connection.execute('CREATE VIEW "[/x]\x1b]0;owned\x07" AS SELECT 1')
    body = zstd.compress(state.read_bytes())
    state.unlink()
    digest = hashlib.sha256(body).hexdigest()[:16]
    snapshot.rename(snapshot.with_name(f"{snapshot.name[:20]}-{digest}.sqlite.zst"))
    next((folder / "snapshots").iterdir()).write_bytes(body)


def has_a_large_snapshot(folder: Path) -> None:
    name = f"{9:020d}-0123456789abcdef.sqlite.zst"
    with (folder / "snapshots" / name).open("wb") as file:
        file.truncate(100 << 30)


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        (names_markup, "a snapshot is not used: its schema has an unknown view '[/x]\\x1b]0;owned"),
        (has_a_large_snapshot, "a snapshot, but the journal ends at entry"),
    ],
)
async def test_a_hostile_snapshot_is_told_in_one_sentence_that_commands_no_terminal(
    tmp_path: Path, planted: Callable[[Path], None], told: str
) -> None:
    bucket = Bucket.directory(tmp_path / "bucket")
    async with seb_process(bucket, tmp_path / "first") as seb:
        seb.process.terminate()
        assert await seb.ended() == 0
    planted(tmp_path / "bucket" / "_seb")
    again = SebProcess(bucket, tmp_path / "second", ["--take-over"])
    try:
        if planted is names_markup:
            await again.ready()
        else:
            assert await again.ended() == 74
        assert told in again.shown
        assert "Traceback" not in again.shown
        assert not {"\x1b", "\x07"} & set(again.shown)
    finally:
        again.kill()


@pytest.mark.parametrize("why", ["a long path", "a file", "a used port", "no certificate"])
async def test_a_start_that_could_not_serve_fences_nobody(tmp_path: Path, why: str) -> None:
    bucket, journal = Bucket.directory(tmp_path / "bucket"), tmp_path / "bucket/_seb/journal"
    data, flags = tmp_path / "data", ["--take-over", "--kafka-port", "0"]
    async with seb_process(bucket, tmp_path / "first") as running:
        before = sorted(journal.iterdir())
        if why == "a long path":
            data = tmp_path / ("x" * 120)
        elif why == "a file":
            data.mkdir()
            (data / "control.sock").touch()
        elif why == "a used port":
            flags[-1] = str(running.port)
        else:
            flags += ["--kafka-tls-certificate", str(tmp_path / "none.pem")]
        other = SebProcess(bucket, data, flags)
        try:
            assert await other.ended() == 78
        finally:
            other.kill()
        assert sorted(journal.iterdir()) == before
        assert "Traceback" not in other.shown

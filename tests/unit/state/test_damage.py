"""A local file that cannot be trusted is moved aside, and its replay is the same state again."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.errors import ConfigurationError, CorruptObjectError
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.tables import state_digest
from tests.unit.state.journal import Journal, sample

JOURNAL = sample(120)


@pytest.fixture(autouse=True)
def _pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is long enough for pages of the index."""
    monkeypatch.setattr(limits, "INDEX_PAGE_ENTRIES", 50)


@pytest.fixture
async def sound(path: Path) -> str:
    """Puts a sound state file at `path`, closed; its digest."""
    database = await StateDatabase.open(path)
    await database.apply(JOURNAL.entries)
    await database.close()
    return state_digest(path)


async def _rebuilt(path: Path, journal: Journal = JOURNAL) -> str:
    """Open, replay what is missing, close; why the file was set aside."""
    database = await StateDatabase.open(path)
    position = await database.position()
    assert not database.set_aside or position == ORIGIN
    await database.apply(journal.entries[position.seq :])
    await database.load()
    await database.close()
    return database.set_aside


def _sql(script: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)

    return run


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _text(path: Path) -> None:
    path.write_text("this is no database\n" * 500)


def _foreign(path: Path) -> None:
    path.unlink()
    _sql("CREATE TABLE readings (at INTEGER, celsius REAL); INSERT INTO readings VALUES (1, 2)")(
        path
    )


def _read_only(path: Path) -> None:
    """Byte 18 is the version that a writer must know."""
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\3")


def _index_astray(path: Path) -> None:
    """One name in the index of topics differs from the name in its table."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_topics_1'"
        ).fetchone()
    whole = path.read_bytes()
    at = whole.index(b"topic-2", (page - 1) * 4096)
    path.write_bytes(whole[:at] + b"topic-0" + whole[at + 7 :])


DAMAGE = {
    "a version of the format": _read_only,
    "index astray": _index_astray,
    "no bytes": _empty,
    "half of it": _half,
    "text": _text,
    "foreign file": _foreign,
    "trigger": _sql(
        "CREATE TRIGGER t AFTER INSERT ON journal_entries BEGIN DELETE FROM topics; END"
    ),
    "view": _sql("CREATE VIEW v AS SELECT * FROM topics"),
    "virtual table": _sql("CREATE VIRTUAL TABLE v USING fts5(x)"),
    "veiled table": _sql(
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES"
        " ('table', 'v', 'v', 0, 'CREATE/**/VIRTUAL TABLE v USING fts5(x)')"
    ),
    "table of somebody else": _sql("CREATE TABLE readings (at INTEGER PRIMARY KEY)"),
    "index of somebody else": _sql("CREATE INDEX i ON journal_entries (epoch)"),
    "column more": _sql("ALTER TABLE topics ADD COLUMN colour TEXT"),
    "column less": _sql("ALTER TABLE api_keys DROP COLUMN expires_us"),
    "table less": _sql("DROP TABLE api_keys"),
    "entry less": _sql("DELETE FROM journal_entries WHERE seq = 7"),
    "entry of another length": _sql("UPDATE journal_entries SET length = length + 1 WHERE seq = 7"),
    "page less": _sql("DELETE FROM index_pages WHERE topic_id = 1"),
    "page of other rows": _sql("UPDATE index_pages SET sections = zeroblob(length(sections))"),
    "topic less": _sql("DELETE FROM topics WHERE topic_id = 1"),
    "revoked key": _sql("UPDATE api_keys SET expires_us = 1"),
    "position ahead": _sql("UPDATE journal_state SET applied_seq = applied_seq + 1"),
    "no position": _sql("DELETE FROM journal_state"),
    "no revision": _sql("DELETE FROM alembic_version"),
    "strange revision": _sql("UPDATE alembic_version SET version_num = 'master'"),
    "revision of no text": _sql("UPDATE alembic_version SET version_num = x'ff00ff'"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_file_is_moved_aside_and_rebuilt(
    path: Path, sound: str, damage: Callable[[Path], None]
) -> None:
    damage(path)
    assert "damaged-1" in await _rebuilt(path)
    assert state_digest(path) == sound
    assert path.with_name("state.sqlite.damaged-1").exists()


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_snapshot_is_refused(
    path: Path, sound: str, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    snapshot = tmp_path / "snapshot"
    shutil.copy(path, snapshot)
    damage(snapshot)
    database = await StateDatabase.open(path)
    with pytest.raises(CorruptObjectError):
        await database.restore(snapshot)
    assert await database.position() == JOURNAL.position
    await database.close()


@pytest.mark.parametrize("what", ["trigger", "view", "virtual table", "veiled table"])
async def test_what_could_act_by_itself_is_refused_before_anything_is_read(
    path: Path, sound: str, what: str
) -> None:
    DAMAGE[what](path)
    assert "its schema has an unknown" in await _rebuilt(path)


@pytest.mark.parametrize("rounds", [25, pytest.param(200, marks=pytest.mark.slow)])
async def test_flipped_bits_anywhere_never_make_another_state(
    path: Path, sound: str, rounds: int
) -> None:
    whole = path.read_bytes()
    randomness = random.Random(rounds)
    set_aside = 0
    for _ in range(rounds):
        damaged = bytearray(whole)
        for at in randomness.sample(range(len(whole)), randomness.choice([1, 1, 8])):
            damaged[at] ^= 1 << randomness.randrange(8)
        path.write_bytes(damaged)
        set_aside += bool(await _rebuilt(path))
        assert state_digest(path) == sound
    assert set_aside > rounds // 3  # the others hit what no row uses


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.slow)])
async def test_a_file_cut_anywhere_never_makes_another_state(
    path: Path, sound: str, rounds: int
) -> None:
    whole = path.read_bytes()
    randomness = random.Random(rounds)
    for _ in range(rounds):
        path.write_bytes(whole[: randomness.randrange(len(whole))])
        assert await _rebuilt(path)
        assert state_digest(path) == sound


async def test_a_log_beside_the_file_is_replayed_after_a_kill(path: Path, tmp_path: Path) -> None:
    killed = await _killed(path, tmp_path)
    assert killed.with_name(f"{killed.name}-wal").stat().st_size > 0
    database = await StateDatabase.open(killed)
    assert database.set_aside == ""
    assert await database.position() == JOURNAL.position
    await database.close()


@pytest.mark.parametrize("lost", [("-wal",), ("-shm",), ("-wal", "-shm")])
async def test_what_is_lost_beside_the_file_after_a_kill_is_replayed(
    path: Path, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    killed = await _killed(path, tmp_path)
    for suffix in lost:
        killed.with_name(killed.name + suffix).unlink()
    await _rebuilt(killed)
    assert state_digest(killed) == state_digest(path)


async def test_a_log_that_is_cut_or_flipped_never_makes_another_state(
    path: Path, tmp_path: Path
) -> None:
    killed = await _killed(path, tmp_path)
    sound = state_digest(path)
    log = killed.with_name(f"{killed.name}-wal")
    whole, main = log.read_bytes(), killed.read_bytes()
    randomness = random.Random(7)
    for turn in range(20):
        killed.with_name(f"{killed.name}-shm").unlink(missing_ok=True)
        killed.write_bytes(main)
        damaged = bytearray(whole)
        at = randomness.randrange(len(damaged))
        damaged[at] ^= 0x10
        log.write_bytes(damaged if turn % 2 else whole[:at])
        await _rebuilt(killed)
        assert state_digest(killed) == sound


async def test_a_kill_amid_a_checkpoint_and_a_lost_log_is_noticed(
    path: Path, tmp_path: Path
) -> None:
    """Pages of two states in one file, each sound by itself: only the checksum tells."""
    database = await StateDatabase.open(path)
    await database.apply(JOURNAL.entries[:60])
    await database.close()
    early = path.read_bytes()
    database = await StateDatabase.open(path)
    await database.apply(JOURNAL.entries[60:])
    await database.close()
    late = path.read_bytes()
    sound = state_digest(path)
    noticed = 0
    for at in range(4096, len(early), 4096):
        path.write_bytes(early[:at] + late[at : at + 4096] + early[at + 4096 :])
        noticed += bool(await _rebuilt(path))
        assert state_digest(path) == sound
    assert noticed


async def test_a_state_of_a_newer_release_stops_the_start_and_stays(path: Path, sound: str) -> None:
    _sql("UPDATE alembic_version SET version_num = '9999'")(path)
    with closing(sqlite3.connect(path)) as connection:
        from seb_appliance.state.tables import rows_checksum

        checksum = rows_checksum(connection)
        with connection:
            connection.execute("UPDATE journal_state SET checksum = ?", (checksum,))
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="newer release"):
        await StateDatabase.open(path)
    assert path.read_bytes() == before


async def test_leftovers_of_a_file_that_is_gone_are_not_replayed_into_the_new_one(
    path: Path, tmp_path: Path
) -> None:
    killed = await _killed(path, tmp_path)
    killed.unlink()
    database = await StateDatabase.open(killed)
    assert (database.set_aside, await database.position()) == ("", ORIGIN)
    await database.close()


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from seb_appliance import limits
from seb_appliance.errors import (ConfigurationError)
from seb_appliance.state.database import StateDatabase
from tests.unit.state.journal import sample

async def main():
    limits.INDEX_PAGE_ENTRIES = int(sys.argv[3])
    journal = sample(400)
    database = await StateDatabase.open(Path(sys.argv[1]))
    await database.apply(journal.entries[:100])
    size = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    refused = 0
    for entry in journal.entries[100:]:
        try:
            await database.apply([entry])
        except ConfigurationError:
            refused += 1
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            await database.apply([entry])
    await database.close()
    print(refused)

import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main())
"""


@pytest.mark.parametrize("size", [200_000, 500_000, 1_000_000])
async def test_a_write_that_the_disk_refuses_changes_nothing_and_may_be_repeated(
    path: Path, tmp_path: Path, size: int
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        FULL_DISK,
        str(path),
        str(size),
        str(limits.INDEX_PAGE_ENTRIES),
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"1\n")
    journal = sample(400)
    rebuilt = await StateDatabase.open(tmp_path / "rebuilt")
    await rebuilt.apply(journal.entries)
    await rebuilt.close()
    assert await _rebuilt(path, journal) == ""
    assert state_digest(path) == state_digest(tmp_path / "rebuilt")


async def _killed(path: Path, tmp_path: Path) -> Path:
    """The files as a kill would leave them; `path` itself is closed cleanly afterwards."""
    database = await StateDatabase.open(path)
    for first in range(0, len(JOURNAL.entries), 10):
        await database.apply(JOURNAL.entries[first : first + 10])
    killed = tmp_path / "killed" / path.name
    shutil.copytree(path.parent, killed.parent)
    await database.close()
    return killed

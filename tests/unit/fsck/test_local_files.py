"""Files of a data directory: held against the bucket, and made anew when they differ."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from seb_appliance.state.record_keys import rows
from seb_appliance.state.tables import rows_checksum
from tests.support.whole_bucket import Whole, check, codes


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def overwrite(path: Path) -> None:
    """The end of each page: rows lie there."""
    body = bytearray(path.read_bytes())
    for at in range(4096, len(body) + 1, 4096):
        body[at - 64 : at] = b"\xff" * 64
    path.write_bytes(body)


async def test_a_damaged_state_file_is_told_and_made_anew(tidied: Whole) -> None:
    overwrite(tidied.data / "state.sqlite")
    assert codes(await check(tidied, local=True)) == ["state_damaged"]
    report = await check(tidied, local=True, repair=True)
    assert len(report.repaired) == 1
    assert report.unrepaired == 0
    assert (tidied.data / "state.sqlite.damaged-1").exists()
    again = await check(tidied, local=True)
    assert again.findings.problems == []


async def test_a_state_file_that_says_something_else_than_the_log_differs(tidied: Whole) -> None:
    path = tidied.data / "state.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE topics SET log_start_offset = 1")
        checksum = (rows_checksum(connection),)
        connection.execute("UPDATE journal_state SET checksum = ?", checksum)
        connection.commit()
    assert codes(await check(tidied, local=True)) == ["state_differs"]
    report = await check(tidied, local=True, repair=True)
    assert report.unrepaired == 0
    assert codes(await check(tidied, local=True)) == []


async def test_without_repair_no_local_file_is_touched(tidied: Whole) -> None:
    path = tidied.data / "state.sqlite"
    overwrite(path)
    before = path.read_bytes()
    report = await check(tidied, local=True)
    assert report.unrepaired == 1
    assert path.read_bytes() == before


def make_wrong_row(path: Path) -> None:
    """A row that is sound in itself and says what the log does not."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT topic_id, key, offset, timestamp_us, tombstone, first FROM latest LIMIT 1"
        topic_id, key, offset, timestamp_us, tombstone, first = connection.execute(query).fetchone()
        newest = (offset, timestamp_us + 1, bool(tombstone), first)
        values = (timestamp_us + 1, rows.latest_crc(topic_id, key, newest), topic_id, key)
        connection.execute(
            "UPDATE latest SET timestamp_us = ?, crc = ? WHERE topic_id = ? AND key = ?", values
        )
        connection.commit()


@pytest.mark.parametrize("full", [False, True])
async def test_a_key_index_with_a_wrong_row_differs(tidied: Whole, full: bool) -> None:
    make_wrong_row(tidied.data / "keyindex.sqlite")
    assert codes(await check(tidied, local=True, full=full)) == ["key_index_differs"]


@pytest.mark.parametrize("full", [False, True])
async def test_a_key_index_that_lacks_a_row_differs_when_all_is_compared(
    tidied: Whole, full: bool
) -> None:
    change(tidied.data / "keyindex.sqlite", "DELETE FROM latest WHERE key = CAST('key 1' AS BLOB)")
    # A missing row may mean a tombstone: only the whole log tells.
    expected = ["key_index_differs"] if full else []
    assert codes(await check(tidied, local=True, full=full)) == expected


async def test_a_key_index_with_a_row_too_many_differs(tidied: Whole) -> None:
    path = tidied.data / "keyindex.sqlite"
    newest = (47, 0, False, 0)
    row = (1, b"nobody", *newest, rows.latest_crc(1, b"nobody", newest))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO latest VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    assert codes(await check(tidied, local=True)) == ["key_index_differs"]


async def test_a_damaged_key_index_is_removed_by_repair(tidied: Whole) -> None:
    change(tidied.data / "keyindex.sqlite", "UPDATE latest SET crc = crc + 1")
    assert codes(await check(tidied, local=True)) == ["key_index_damaged"]
    report = await check(tidied, local=True, repair=True)
    assert report.unrepaired == 0
    assert not (tidied.data / "keyindex.sqlite").exists()
    assert codes(await check(tidied, local=True)) == []


async def test_a_damaged_file_of_the_cache_is_removed_by_repair(young: Whole) -> None:
    entry = young.entries[10]
    bucket_id = (await check(young)).bucket_id
    folder = young.data / "cache" / bucket_id.hex()
    folder.mkdir(parents=True)
    sound, broken = folder / f"{5:020d}.entry", folder / f"{int(entry.stem):020d}.entry"
    sound.write_bytes(young.entries[4].read_bytes())
    body = bytearray(entry.read_bytes())
    body[-9] ^= 1
    broken.write_bytes(body)
    assert codes(await check(young, local=True)) == ["cache_damaged"]
    await check(young, local=True, repair=True)
    assert (sound.exists(), broken.exists()) == (True, False)


async def test_repair_changes_nothing_in_the_bucket(tidied: Whole) -> None:
    overwrite(tidied.data / "state.sqlite")
    for path in tidied.keys("packed/*"):
        path.write_bytes(path.read_bytes()[:-8])

    def seen() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tidied.bucket.rglob("*") if path.is_file()}

    before = seen()
    report = await check(tidied, local=True, repair=True)
    assert report.unrepaired > 0
    assert seen() == before

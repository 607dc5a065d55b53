"""local.sqlite: remembered over a restart, private, and begun anew when it is no good."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from seb_appliance.errors import ConfigurationError, CorruptObjectError
from seb_appliance.state import local
from seb_appliance.state.local import LocalFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "local.sqlite"


async def test_what_was_saved_is_there_again_for_keys_that_are(path: Path) -> None:
    file = LocalFile(path)
    assert await file.load_last_used({"a", "b"}) == {}
    await file.save_last_used({"a": 1, "b": 2})
    await file.save_last_used({"b": 3, "c": 4})
    assert await LocalFile(path).load_last_used({"b", "c"}) == {"b": 3, "c": 4}
    assert await LocalFile(path).load_last_used({"a", "b", "c"}) == {"b": 3, "c": 4}


async def test_only_the_owner_may_read_it(path: Path) -> None:
    await LocalFile(path).load_last_used(set())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"no database at all", b"SQLite format 3\0" + b"\xff" * 4]
)
async def test_a_file_that_is_none_is_begun_anew(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    file = LocalFile(path)
    assert await file.load_last_used({"a"}) == {}
    await file.save_last_used({"a": 1})
    assert await file.load_last_used({"a"}) == {"a": 1}


@pytest.mark.parametrize("spoiled", ["PRAGMA user_version = 7", "DROP TABLE last_used"])
async def test_a_file_of_another_shape_is_begun_anew(path: Path, spoiled: str) -> None:
    await LocalFile(path).save_last_used({"a": 1})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(spoiled)
    assert await LocalFile(path).load_last_used({"a"}) == {}


async def test_a_folder_that_is_not_there_is_the_operators_to_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        await LocalFile(tmp_path / "missing" / "local.sqlite").load_last_used(set())


async def test_a_document_is_what_was_saved_last(path: Path) -> None:
    file = LocalFile(path)
    assert await file.load_document("cost") is None
    await file.save_document("cost", b"1")
    await file.save_document("cost", b"\0two")
    assert await LocalFile(path).load_document("cost") == b"\0two"
    assert await LocalFile(path).load_document("other") is None


async def test_a_file_of_the_first_version_keeps_what_it_holds(path: Path) -> None:
    await LocalFile(path).save_last_used({"a": 1})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "DROP TABLE documents; DROP TABLE samples; PRAGMA user_version = 1;"
        )
    file = LocalFile(path)
    await file.save_document("cost", b"1")
    assert await file.load_document("cost") == b"1"
    assert await file.load_last_used({"a"}) == {"a": 1}


async def test_a_file_without_its_documents_is_begun_anew(path: Path) -> None:
    await LocalFile(path).save_document("cost", b"1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE documents")
    assert await LocalFile(path).load_document("cost") is None


async def test_a_kill_while_it_is_brought_to_a_newer_version_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await LocalFile(path).save_last_used({"a": 1})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "DROP TABLE documents; DROP TABLE samples; PRAGMA user_version = 1;"
        )
    first, second, *_ = local._STEPS
    with monkeypatch.context() as patched:
        patched.setattr(local, "_STEPS", (first, f"{second} killed;"))
        with pytest.raises(CorruptObjectError):
            await LocalFile(path).save_document("cost", b"1")
    assert await LocalFile(path).load_last_used({"a"}) == {"a": 1}

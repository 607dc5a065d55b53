"""local.sqlite: remembered over a restart, private, and begun anew when it is no good."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from seb_appliance.errors import ConfigurationError
from seb_appliance.state.local import LocalFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "local.sqlite"


def test_what_was_saved_is_there_again_for_keys_that_are(path: Path) -> None:
    file = LocalFile(path)
    assert file.load_last_used({"a", "b"}) == {}
    file.save_last_used({"a": 1, "b": 2})
    file.save_last_used({"b": 3, "c": 4})
    assert LocalFile(path).load_last_used({"b", "c"}) == {"b": 3, "c": 4}
    assert LocalFile(path).load_last_used({"a", "b", "c"}) == {"b": 3, "c": 4}


def test_only_the_owner_may_read_it(path: Path) -> None:
    LocalFile(path).load_last_used(set())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"no database at all", b"SQLite format 3\0" + b"\xff" * 4]
)
def test_a_file_that_is_none_is_begun_anew(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    file = LocalFile(path)
    assert file.load_last_used({"a"}) == {}
    file.save_last_used({"a": 1})
    assert file.load_last_used({"a"}) == {"a": 1}


@pytest.mark.parametrize("spoiled", ["PRAGMA user_version = 7", "DROP TABLE last_used"])
def test_a_file_of_another_shape_is_begun_anew(path: Path, spoiled: str) -> None:
    LocalFile(path).save_last_used({"a": 1})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(spoiled)
    assert LocalFile(path).load_last_used({"a"}) == {}


def test_a_folder_that_is_not_there_is_the_operators_to_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        LocalFile(tmp_path / "missing" / "local.sqlite").load_last_used(set())


def test_a_document_is_what_was_saved_last(path: Path) -> None:
    file = LocalFile(path)
    assert file.load_document("cost") is None
    file.save_document("cost", b"1")
    file.save_document("cost", b"\0two")
    assert LocalFile(path).load_document("cost") == b"\0two"
    assert LocalFile(path).load_document("other") is None


def test_a_file_of_the_first_version_keeps_what_it_holds(path: Path) -> None:
    LocalFile(path).save_last_used({"a": 1})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("DROP TABLE documents; PRAGMA user_version = 1;")
    file = LocalFile(path)
    file.save_document("cost", b"1")
    assert file.load_document("cost") == b"1"
    assert file.load_last_used({"a"}) == {"a": 1}


def test_a_file_without_its_documents_is_begun_anew(path: Path) -> None:
    LocalFile(path).save_document("cost", b"1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE documents")
    assert LocalFile(path).load_document("cost") is None

"""`seb fsck` as it is called: what it prints, how it ends."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from seb_appliance.cli import run
from seb_appliance.ops.host.data_directory import own_data_directory
from seb_appliance.ops.host.scratch import MARK, scratch_folder
from tests.support.whole_bucket import Whole


def fsck(whole: Whole, *flags: str) -> int:
    return run(["fsck", "--bucket", f"file:{whole.bucket}", "--data", str(whole.data), *flags])


def test_a_clean_bucket_ends_with_0(tidied: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsck(tidied) == 0
    shown = capsys.readouterr().out
    assert "clean" in shown.splitlines()[0]
    assert "local_files     checked" in shown


def test_problems_end_with_65_and_are_told_as_data(
    tidied: Whole, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tidied.keys("packed/*")[0]
    packed.unlink()
    assert fsck(tidied, "--json") == 65
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"].startswith("DAMAGED")
    problem = told["problems"][0]
    assert (problem["code"], problem["severity"]) == ("records_lost", "damage")
    assert problem["object"] == tidied.key(packed)
    assert problem["topic"] in {"orders", "iot.kitchen"}
    assert 0 <= problem["first_offset"] <= problem["last_offset"]
    assert "Restore this object" in problem["advice"]


def test_problems_are_told_in_words(tidied: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    (tidied.bucket / "_seb" / "mine").write_bytes(b"?")
    assert fsck(tidied) == 65
    shown = capsys.readouterr().out
    assert "foreign_object: _seb/mine\n    1 bytes at a key that no appliance uses\n" in shown


def test_a_data_directory_that_a_server_has_is_left_alone(
    tidied: Whole, capsys: pytest.CaptureFixture[str]
) -> None:
    (tidied.data / "state.sqlite").write_bytes(b"damaged")
    with own_data_directory(tidied.data):
        assert fsck(tidied) == 0
        assert "not checked: an appliance runs on" in capsys.readouterr().out
        assert fsck(tidied, "--repair") == 1
    assert "stop the appliance first" in capsys.readouterr().err
    assert (tidied.data / "state.sqlite").read_bytes() == b"damaged"


def test_repair_mends_local_files_and_ends_with_0(
    tidied: Whole, capsys: pytest.CaptureFixture[str]
) -> None:
    (tidied.data / "state.sqlite").write_bytes(b"damaged")
    assert fsck(tidied, "--bucket-only") == 0
    assert fsck(tidied, "--repair") == 0
    assert "repaired: state.sqlite was rebuilt from the bucket" in capsys.readouterr().out
    assert fsck(tidied) == 0


def test_where_there_is_no_bucket_it_ends_with_74(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsck(Whole("A", tmp_path / "none", tmp_path / "data")) == 74
    assert "there is no directory" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    assert fsck(Whole("A", tmp_path / "none", tmp_path / "data")) == 74
    assert "is not the bucket of an appliance" in capsys.readouterr().err


def test_the_data_directory_of_another_bucket_is_refused(
    tidied: Whole, made_claimed: Whole, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tidied.data / "state.sqlite"
    before = (made_claimed.data / "state.sqlite").read_bytes()
    state.write_bytes(before)
    assert fsck(tidied, "--repair") == 78
    assert "belongs to another bucket" in capsys.readouterr().err
    assert state.read_bytes() == before


def test_what_a_killed_one_left_in_the_temporary_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But nothing of one that runs, and nothing behind a link."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, theirs = tmp_path / "seb-fsck-killed", tmp_path / "theirs"
    for folder in (killed, theirs):
        folder.mkdir()
        (folder / "reference.sqlite").write_bytes(b"8 GiB")
        (folder / MARK).touch()
    (tmp_path / "seb-fsck-of-them").mkdir()
    (tmp_path / "seb-fsck-link").symlink_to(theirs)
    with scratch_folder("seb-fsck-") as one, scratch_folder("seb-fsck-") as two:
        assert one.stat().st_mode & 0o077 == 0
        assert {path.name for path in tmp_path.iterdir()} == {
            one.name, two.name, "theirs", "seb-fsck-link", "seb-fsck-of-them"
        }  # fmt: skip
    assert (theirs / "reference.sqlite").exists()
    assert not one.exists()

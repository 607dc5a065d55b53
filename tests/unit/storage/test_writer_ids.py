"""The writer ids of a data directory survive crashes."""

import errno
import os
from pathlib import Path

import pytest

from seb_appliance.errors import ConfigurationError, DiskError
from seb_appliance.storage.recovery.writer_ids import WriterIds


def test_remembered_ids_are_known(tmp_path):
    ids = WriterIds(tmp_path / "writer-ids")
    assert ids.known() == frozenset()
    ids.remember(b"a" * 16)
    ids.remember(b"b" * 16)
    assert WriterIds(tmp_path / "writer-ids").known() == {b"a" * 16, b"b" * 16}


def test_a_line_cut_short_by_a_crash_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "writer-ids"
    WriterIds(path).remember(b"a" * 16)
    with path.open("ab") as file:
        file.write(b"626262")
    WriterIds(path).remember(b"c" * 16)
    assert WriterIds(path).known() == {b"a" * 16, b"c" * 16}


@pytest.mark.parametrize("room", [0, 20])
def test_an_id_that_the_disk_takes_only_a_part_of_is_not_used(tmp_path, monkeypatch, room):
    path = tmp_path / "writer-ids"
    WriterIds(path).remember(b"a" * 16)
    really_write = os.write

    def write(descriptor, data):
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really_write(descriptor, data[:room])

    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        with pytest.raises(DiskError, match="No space left"):
            WriterIds(path).remember(b"b" * 16)
    WriterIds(path).remember(b"c" * 16)
    assert WriterIds(path).known() == {b"a" * 16, b"c" * 16}


def test_nobody_else_may_read_them(tmp_path):
    WriterIds(tmp_path / "writer-ids").remember(b"a" * 16)
    assert (tmp_path / "writer-ids").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("plant", [Path.symlink_to, lambda path, _: os.mkfifo(path)])
def test_they_are_kept_in_no_file_of_somebody_else(tmp_path, plant):
    """In a data directory that others may write to."""
    theirs, path = tmp_path / "theirs", tmp_path / "writer-ids"
    theirs.write_text("precious")
    plant(path, theirs)
    for use in (WriterIds(path).known, lambda: WriterIds(path).remember(b"a" * 16)):
        with pytest.raises(ConfigurationError, match="writer-ids"):
            use()
    assert theirs.read_text() == "precious"


def test_the_line_and_its_name_are_on_the_disk_when_it_is_remembered(tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path, path.is_dir() or path.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    WriterIds(tmp_path / "writer-ids").remember(b"a" * 16)
    assert synced == [(tmp_path / "writer-ids", b"\n" + b"61" * 16 + b"\n"), (tmp_path, True)]


def test_no_descriptor_stays_open(tmp_path, monkeypatch):
    still_open = set()
    really_open, really_close = os.open, os.close

    def opening(*arguments):
        descriptor = really_open(*arguments)
        still_open.add(descriptor)
        return descriptor

    def closing(descriptor):
        still_open.remove(descriptor)
        really_close(descriptor)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    WriterIds(tmp_path / "writer-ids").remember(b"a" * 16)
    assert still_open == set()

"""The writer ids of a data directory survive crashes."""

from seb_appliance.storage.writer_ids import WriterIds


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


def test_nobody_else_may_read_them(tmp_path):
    WriterIds(tmp_path / "writer-ids").remember(b"a" * 16)
    assert (tmp_path / "writer-ids").stat().st_mode & 0o777 == 0o600

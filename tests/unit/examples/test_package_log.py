"""What the lines of dpkg's log mean, on a log and a table that a real dpkg wrote."""

from __future__ import annotations

import gzip
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "package-log"
SAMPLE = EXAMPLE / "sample"


@pytest.fixture(scope="module")
def package_log() -> ModuleType:
    spec = importlib.util.spec_from_file_location("package_log", EXAMPLE / "package_log.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["package_log"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sample_rebuilds_to_the_table_that_dpkg_had(package_log: ModuleType) -> None:
    rebuilt = package_log.rebuild(package_log.log_lines(SAMPLE / "dpkg.log"), "amd64")
    real = package_log.dpkg_table((SAMPLE / "dpkg-query.txt").read_text(), "amd64")
    result = package_log.compare(rebuilt, real)
    assert (result.agreeing, result.differing, result.older) == (8, [], 1)
    assert rebuilt["tree:amd64"].package == "tree:all"
    assert rebuilt["wget:amd64"].status == "config-files"
    assert rebuilt["mtools:amd64"].status == "not-installed"


def test_a_package_that_differs_is_named(package_log: ModuleType) -> None:
    rebuilt = package_log.rebuild(package_log.log_lines(SAMPLE / "dpkg.log"), "amd64")
    output = (SAMPLE / "dpkg-query.txt").read_text()
    changed = output.replace("hello:amd64 installed 2.10-3", "hello:amd64 installed 2.10-4")
    removed = output.replace("jq:amd64 installed 1.6-2.1+deb12u3\n", "")
    for table, name in ((changed, "hello:amd64"), (removed, "jq:amd64")):
        result = package_log.compare(rebuilt, package_log.dpkg_table(table, "amd64"))
        assert [line.split(": ")[0] for line in result.differing] == [name]


def test_a_line_is_keyed_by_its_package_if_it_is_about_one(package_log: ModuleType) -> None:
    keys = {
        "2026-11-21 09:30:28 startup archives install": None,
        "2026-11-21 09:30:28 install tree:amd64 <none> 2.1.0-1": "tree:amd64",
        "2026-11-21 09:30:28 status unpacked tree:amd64 2.1.0-1": "tree:amd64",
        "2026-11-21 09:30:28 trigproc libc-bin:amd64 2.36-9 <none>": "libc-bin:amd64",
        "2026-11-21 09:30:28 conffile /etc/wgetrc keep": None,
        "2026-11-21 09:30:28 status": None,
        "": None,
        "\0\0\0": None,
    }
    assert {line: package_log.package_of(line) for line in keys} == keys


def test_a_timestamp_is_local_time_told_in_utc(
    package_log: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert package_log.timestamp_of("2026-07-01 12:00:00 startup") == "2026-07-01T10:00:00Z"
        assert package_log.timestamp_of("2026-13-01 12:00:00 startup") is None
        assert package_log.timestamp_of("") is None
    finally:
        monkeypatch.undo()
        time.tzset()


def test_rotated_logs_are_read_oldest_first(package_log: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "dpkg.log").write_text("e\nf\n")
    (tmp_path / "dpkg.log.1").write_text("d\n")
    (tmp_path / "dpkg.log.2.gz").write_bytes(gzip.compress(b"b\nc\n"))
    (tmp_path / "dpkg.log.10.gz").write_bytes(gzip.compress(b"a\n"))
    (tmp_path / "dpkg.log.old").write_text("not ours\n")
    assert "".join(package_log.log_lines(tmp_path / "dpkg.log")) == "abcdef"

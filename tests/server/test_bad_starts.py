"""What a start refuses: one clear sentence each that says what to do, never a traceback."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from seb_appliance.cli import run
from seb_appliance.ops.serve import process
from seb_appliance.state.tables import rows_checksum
from seb_appliance.storage.recovery import opening
from tests.support.bucket_server import BucketServer
from tests.support.faultproxy import FaultProxy, Rule
from tests.support.process import Bucket
from tests.support.servers.s3_server import S3Server
from tests.upgrade.stored_data import unpack

pytestmark = pytest.mark.slow


@dataclass
class Place:
    """What a case may spoil before the start. `flags` and `environment` are those of the start."""

    folder: Path
    patch: pytest.MonkeyPatch
    environment: dict[str, str]
    flags: dict[str, str] = field(default_factory=dict)
    until_the_end: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def store(self, name: str = "0.1.0-a") -> None:
        """A bucket, a directory, and its data directory."""
        unpack(name, self.folder)
        self.flags["bucket"] = f"file:{self.folder / 'bucket'}"


@dataclass(frozen=True)
class Case:
    """`says`: what the sentence must hold."""

    name: str
    spoil: Callable[[Place], object]
    exit_code: int
    says: tuple[str, ...]
    rules: tuple[Rule, ...] = ()


def denied(method: str, code: str = "AccessDenied") -> Rule:
    return Rule("status", method=method, code=403, error=code)


def no_change(_place: Place) -> None:
    """The rules alone are the fault."""


def _not_forever(place: Place) -> None:
    place.patch.setattr(opening, "START_PATIENCE_S", 0.3)


def _other_bucket(place: Place) -> None:
    place.flags["bucket"] = "s3://no-such-bucket/seb"


def _taken_port(place: Place) -> None:
    listener = place.until_the_end.enter_context(socket.create_server(("127.0.0.1", 0)))
    place.flags["port"] = str(listener.getsockname()[1])


def _unknown_setting(place: Place) -> None:
    place.patch.setenv("SEB_LINGRE", "1s")


def _used_bucket(place: Place) -> None:
    place.store()
    shutil.rmtree(place.data)


def _data_of_another(place: Place) -> None:
    place.store("0.1.0-b")
    shutil.rmtree(place.folder / "bucket")
    place.flags["bucket"] = f"file:{place.folder / 'new'}"


def _newer_data(place: Place) -> None:
    place.store()
    with closing(sqlite3.connect(place.data / "state.sqlite")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
        checksum = rows_checksum(connection)
        connection.execute("UPDATE journal_state SET checksum = ?", (checksum,))


def _newer_bucket(place: Place) -> None:
    place.store()
    path = place.folder / "bucket" / "_seb" / "bucket.json"
    path.write_bytes(path.read_bytes().replace(b'"journal_entry": 1', b'"journal_entry": 2'))


def _data_is_a_file(place: Place) -> None:
    place.data.write_text("")


def _read_only_disk(place: Place) -> None:
    _mount(place.data, "ro")


def _full_disk(place: Place) -> None:
    _mount(place.data, "size=32k")


def _full_disk_of_the_bucket(place: Place) -> None:
    _not_forever(place)
    bucket = place.folder / "bucket"
    _mount(bucket, "size=4k")
    place.flags["bucket"] = f"file:{bucket}"


def _mount(folder: Path, options: str) -> None:
    """A small disk of its own; gone with the test."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs to mount a disk")


CASES = [
    Case("a bucket that is not there", _other_bucket, 74, ("does not exist", "Check --bucket")),
    Case(
        "another region",
        no_change,
        74,
        ("AuthorizationHeaderMalformed", "s3_region"),
        (Rule("status", code=400, error="AuthorizationHeaderMalformed"),),
    ),
    Case("wrong credentials", no_change, 74, ("403", "SignatureDoesNotMatch"),
         (Rule("status", code=403, error="SignatureDoesNotMatch"),)),
    Case("credentials that may not write", no_change, 74, ("403", "PutObject"), (denied("PUT"),)),
    Case("credentials that may not list", no_change, 74, ("403", "ListObjectsV2"),
         (Rule("status", method="GET", match="list-type", code=403),)),
    Case("a clock that is wrong", _not_forever, 69, ("clock",),
         (Rule("status", code=403, error="RequestTimeTooSkewed"),)),
    Case("a bucket that is away", _not_forever, 69, ("503",), (Rule("status", code=503),)),
    Case("a bucket of another appliance", _used_bucket, 73, ("in use", "--take-over")),
    Case("the data of another bucket", _data_of_another, 78, ("Is this the right bucket?",)),
    Case("data of a newer release", _newer_data, 78, ("newer release", "Install that release")),
    Case("a bucket of a newer release", _newer_bucket, 78, ("version 2", "Install the release")),
    Case("a setting that there is not", _unknown_setting, 78, ("do you mean SEB_LINGER",)),
    Case("a port that is taken", _taken_port, 1, ("cannot listen", "another --port")),
    Case("data that is a file", _data_is_a_file, 78, ("data",)),
    Case("a disk that is read-only", _read_only_disk, 78, ("Read-only", "data")),
    Case("a disk that is full", _full_disk, 1, ("free space", "data")),
    Case("a full disk of the bucket", _full_disk_of_the_bucket, 69, ("No space left",)),
]  # fmt: skip

T = TypeVar("T", FaultProxy, BucketServer)


@contextlib.contextmanager
def in_a_thread(server: T) -> Iterator[T]:
    """On a loop of its own: the appliance under test has the main thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    try:
        yield server
    finally:
        leaving = server.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(leaving, loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def proxy(moto_server: S3Server) -> Iterator[FaultProxy]:
    with in_a_thread(FaultProxy(moto_server.port)) as running:
        yield running


@pytest.fixture
def place(
    tmp_path: Path, moto_server: S3Server, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """A bucket on an S3 server, which is fit until a case spoils something."""
    for name in ("configure_logs", "keep_freed_memory", "_allow_many_files"):  # of the process
        monkeypatch.setattr(process, name, lambda *_: None)
    bucket = Bucket.s3(moto_server.new_bucket(), proxy.port)
    made = Place(tmp_path, monkeypatch, dict(bucket.environment), {"bucket": bucket.address})
    with made.until_the_end:
        yield made
    proxy.clear()
    for folder in ("data", "bucket"):
        if (tmp_path / folder).is_mount():
            subprocess.run(["umount", tmp_path / folder], check=True)


def start(place: Place) -> int:
    """`seb serve` in this process."""
    flags = {"data": str(place.data), "port": "0", **place.flags}
    for name, value in place.environment.items():
        place.patch.setenv(name, value)
    return run(["serve", *(f"--{name}={value}" for name, value in flags.items())])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_told_in_one_sentence(
    case: Case, place: Place, proxy: FaultProxy, capfd: pytest.CaptureFixture[str]
) -> None:
    case.spoil(place)
    for rule in case.rules:
        proxy.add(rule)
    exit_code = start(place)
    told = capfd.readouterr().err
    assert exit_code == case.exit_code, told
    assert told.startswith("seb: ")
    assert told.count("\n") == 1, told
    assert "Traceback" not in told
    for words in case.says:
        assert words in told, told


def test_the_doctor_tells_what_mode_b_costs_where_create_only_is_not_known(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    with in_a_thread(BucketServer(create_only=False)) as server:
        bucket = Bucket.s3(server.options, server.port)
        place.flags["bucket"] = bucket.address
        place.environment.update(bucket.environment)
        exit_code = run(["doctor", *_as_doctor(place)])
    assert exit_code == 0
    told = capfd.readouterr().out
    assert "one LIST for each acknowledgement" in told
    assert "cost" in told


def test_credentials_that_may_not_delete_are_a_warning(
    place: Place, proxy: FaultProxy, capfd: pytest.CaptureFixture[str]
) -> None:
    proxy.add(denied("DELETE"))
    assert run(["doctor", *_as_doctor(place)]) == 0
    assert "Allow s3:DeleteObject" in capfd.readouterr().out


def _as_doctor(place: Place) -> list[str]:
    for name, value in place.environment.items():
        place.patch.setenv(name, value)
    return [f"--bucket={place.flags['bucket']}", f"--data={place.data}"]

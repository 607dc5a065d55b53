"""`seb …` against a whole appliance, which runs on an event loop of its own in a thread."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seb_appliance.cli import run
from tests.support.appliance import RunningAppliance, running_appliance


@dataclass(frozen=True)
class Told:
    """What a command told: exit code, stdout, stderr."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table, without its head; no cell may be empty or hold two spaces."""
        return [line.split() for line in self.out.splitlines()[1:]]


@dataclass(frozen=True)
class Seb:
    """Runs commands; `stdin` is what a person types, or a file's bytes."""

    appliance: RunningAppliance
    key_file: Path
    capture: pytest.CaptureFixture[bytes]
    patch: pytest.MonkeyPatch
    folder: Path

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Told:
        path = self.folder / "stdin"
        path.write_bytes(stdin)
        with path.open("rb") as raw, io.TextIOWrapper(raw, "utf-8", "replace") as typed:
            self.patch.setattr("sys.stdin", typed)
            self.capture.readouterr()
            code = run(arguments)
        told = self.capture.readouterr()
        return Told(code, told.out, told.err.decode())

    def good(self, *arguments: str, stdin: bytes = b"") -> Told:
        told = self(*arguments, stdin=stdin)
        assert told.code == 0, told.err
        return told

    def refused(self, *arguments: str, stdin: bytes = b"", code: int = 1) -> str:
        """The one sentence on stderr (the last line: a question may stand before it)."""
        told = self(*arguments, stdin=stdin)
        assert told.code == code, (told.out, told.err)
        assert told.raw == b""
        assert "Traceback" not in told.err
        return told.err.splitlines()[-1].rpartition("seb: ")[2]


@pytest.fixture(scope="module")
def appliance(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RunningAppliance]:
    """One for each module of tests, so that they name their topics apart. A module with TABLES has
    a bucket that can hold them."""
    data = tmp_path_factory.mktemp("seb")
    bucket = f"file:{data / 'bucket'}" if hasattr(request.module, "TABLES") else "memory:"
    ready: asyncio.Queue[RunningAppliance] = asyncio.Queue()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()
    failures: list[BaseException] = []
    opened = threading.Event()

    async def serve() -> None:
        try:
            async with running_appliance(data / "data", bucket=bucket) as running:
                ready.put_nowait(running)
                opened.set()
                await done.wait()
        except BaseException as error:
            failures.append(error)
        finally:
            opened.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    opened.wait()
    assert not failures, failures
    yield ready.get_nowait()
    loop.call_soon_threadsafe(done.set)
    thread.join()
    loop.close()
    assert not failures, failures


@pytest.fixture
def seb(
    appliance: RunningAppliance,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Seb:
    key_file = tmp_path / "key"
    key_file.write_text(appliance.admin_key)
    monkeypatch.setenv("SEB_URL", appliance.base_url)
    monkeypatch.setenv("SEB_KEY_FILE", str(key_file))
    return Seb(appliance, key_file, capsysbinary, monkeypatch, tmp_path)

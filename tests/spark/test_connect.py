"""Spark Connect: the connector is where the server is, and the client may have nothing of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster import SPARK, bare_python, environment, waited
from tests.spark.conftest import ROOT, House, value_of
from tests.spark.test_cluster import COUNT, JOB, values
from tests.support.servers.s3_server import free_port

GRPC = ROOT / ".state" / "connect"
OF_CLIENTS = ["dateutil*", "google*", "pandas*", "protobuf*", "pytz*", "six*", "tzdata*"]
OF_SERVER = {"SPARK_CONNECT_MODE": "0", "SPARK_DAEMON_MEMORY": "1g"}
HELPERS = """
import json, sys
from pyspark.sql import SparkSession
from pyspark_seb import commit, narrowed, offsets_of

url, token_file, topic = sys.argv[1:]
seb = {"url": url, "tokenFile": token_file, "topics": topic, "group": f"{topic}.helpers"}
records = SparkSession.builder.getOrCreate().read.format("seb").options(**seb).load()
rows = narrowed(records, seb, from_offset=10).count()
end = offsets_of(records)[topic].end
commit(records, seb["group"], seb)
print("DONE", json.dumps([rows, end]))
"""

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="no Java here: sh .ci/install-java"),
    pytest.mark.skipif(not GRPC.exists(), reason="no grpcio here: sh tests/spark/install.sh"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. Its Python is that of the tests, which has the connector."""
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.authenticate.socketTimeout": "2m",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
    }
    log = folder / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [SPARK / "bin" / "spark-submit", "--master", "local[2]"]
            + [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
            + ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
            + ["spark-internal"],
            env={**environment(Path(sys.executable), folder), **OF_SERVER},
            cwd=folder,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        waited(process, log, "Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(60)


def shown(server: str, python: Path | str, *arguments: str | Path, path: tuple[Path, ...]) -> str:
    """What a client printed."""
    finished = subprocess.run(
        [python, *arguments],
        env={
            "PATH": os.environ["PATH"],
            "SPARK_REMOTE": server,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
        },
        cwd=path[0],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr[-5000:]
    return finished.stdout.partition("DONE ")[2]


def test_a_client_without_the_connector_reads_streams_and_writes(
    house: House, server: str, tmp_path: Path
) -> None:
    topic = house.name()
    house.produce(topic, COUNT)
    python = bare_python(tmp_path / "python", *OF_CLIENTS)
    arguments = [house.url, house.token_file, topic, tmp_path / "checkpoint", "known"]
    done = json.loads(shown(server, python, JOB, *arguments, path=(GRPC,)))
    assert done["rows"] == COUNT
    wanted = [value_of(n) for n in range(COUNT)]
    assert sorted(values(house, f"{topic}.copied")) == wanted
    assert sorted(values(house, f"{topic}.streamed")) == wanted
    assert house.committed(topic, topic) == COUNT


def test_a_batch_of_ones_own_is_committed_over_connect(house: House, server: str) -> None:
    topic = house.name()
    house.produce(topic, 100)
    arguments = ["-c", HELPERS, house.url, house.token_file, topic]
    path = (GRPC, ROOT, ROOT / "spark")
    assert json.loads(shown(server, sys.executable, *arguments, path=path)) == [90, 100]
    assert house.committed(f"{topic}.helpers", topic) == 100

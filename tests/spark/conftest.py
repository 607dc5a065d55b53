"""One Spark and one appliance on an S3 server for all tests here: both take seconds to start."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from tests.support.process import Bucket, SebProcess
from tests.support.servers.s3_server import S3Server

pyspark = pytest.importorskip("pyspark")

from pyspark.sql import SparkSession  # noqa: E402
from pyspark_seb.client import Appliance  # noqa: E402

ROOT = Path(__file__).parents[2]
START_US = 1_790_000_000_000_000
APPEND_RECORDS = 5_000
WAIT_S = 60.0

_names = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
            # Spark's own files and sockets are closed when its process ends.
            item.add_marker(pytest.mark.filterwarnings("default"))


ENVIRONMENT = {  # of the processes that Spark starts: this Python, and our code
    "PYTHONPATH": os.pathsep.join(
        [str(ROOT), str(ROOT / "spark"), os.environ.get("PYTHONPATH", "")]
    ),
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2,3]: two tasks at a time, and each is tried three times."""
    if shutil.which("java") is None:
        pytest.skip("no Java here: sh .ci/install-java")
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,3]").appName("tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "2m",  # a busy machine is no failure
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        f"-Djava.io.tmpdir={folder}",
    }.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in ENVIRONMENT.items():
            patched.setenv(name, value)
        made = builder.getOrCreate()
        made.sparkContext.setLogLevel("OFF")
        yield made
        made.stop()
        _forget_the_gateway()


def _forget_the_gateway() -> None:
    """Spark keeps its JVM and the sockets to it until the process ends, where each would be a
    warning. The JVM ends with its standard input."""
    gateway = pyspark.SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class House:
    """The appliance, and what a test asks of it. Each test has topics and groups of its own."""

    def __init__(self, seb: SebProcess, bucket: Bucket) -> None:
        self.seb = seb
        self.bucket = bucket
        self.url = f"http://127.0.0.1:{seb.port}"
        self.token_file = str(seb.data / "admin.key")
        self.appliance = Appliance(self.url, self.token_file)

    def options(self, **more: object) -> dict[str, str]:
        base = {"url": self.url, "tokenFile": self.token_file}
        return {**base, **{name: str(value) for name, value in more.items()}}

    def name(self, what: str = "topic") -> str:
        """A new one."""
        return f"{what}-{next(_names)}"

    def produce(
        self, topic: str, count: int, *, size: int = 20, keys: int = 0, every_s: int = 1
    ) -> None:
        """Append records that contain their number. `keys`: how many record keys they have, 0 for
        none. `every_s`: the seconds between their timestamps."""
        begin = self.log_end(topic) if self.exists(topic) else 0
        for at in range(begin, begin + count, APPEND_RECORDS):
            numbers = range(at, min(at + APPEND_RECORDS, begin + count))
            values = [value_of(n, size) for n in numbers]
            named = [b"key-%d" % (n % keys) for n in numbers] if keys else None
            columns = Columns(
                int64s(START_US + n * every_s * 1_000_000 for n in numbers),
                BinaryColumn.of(values),
                None if named is None else BinaryColumn.of(named),
            )
            body = batch.encode(columns, base_offset=0, created_us=0)
            kind = {"Content-Type": "application/vnd.seb.batch"}
            self.appliance.request("POST", f"/v1/topics/{topic}/records", body, kind)

    def exists(self, topic: str) -> bool:
        listed = self.appliance.get("/v1/topics", pattern=topic).json()["topics"]
        return bool(listed)

    def topic(self, topic: str) -> dict:
        return self.appliance.get(f"/v1/topics/{topic}").json()

    def log_end(self, topic: str) -> int:
        return self.topic(topic)["log_end_offset"]

    def trim(self, topic: str, before: int) -> None:
        self.appliance.send("POST", f"/v1/topics/{topic}/trim", {"before": before})

    def commit(self, group: str, topic: str, offset: int, **more: object) -> None:
        content = {"offsets": {topic: offset}, **more}
        self.appliance.send("PUT", f"/v1/groups/{group}/offsets", content)

    def committed(self, group: str, topic: str) -> int | None:
        from pyspark_seb.options import committed_offsets

        found = committed_offsets(self.appliance, group).get(topic)
        return None if found is None else found.offset

    def status(self) -> dict:
        return self.appliance.get("/v1/status").json()

    def change(self, topic: str, **settings: object) -> None:
        self.appliance.send("PATCH", f"/v1/topics/{topic}", settings)

    def until(self, topic: str, is_so: Callable[[dict], object]) -> dict:
        """The manifest, once it is so."""
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            found = self.appliance.get(f"/v1/topics/{topic}/manifest").json()
            if is_so(found):
                return found
            time.sleep(0.1)
        raise AssertionError(f"not so after {WAIT_S} s: {found}")

    def tidied(self, topic: str) -> dict:
        """The manifest, once most of the topic is in segments."""
        return self.until(
            topic,
            lambda found: (
                found["segments"] and found["segments_end_offset"] * 2 > found["log_end_offset"]
            ),
        )

    def compacted(self, topic: str) -> None:
        """Return once the topic was compacted, and all of its first records with it."""
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            found = self.appliance.get(f"/v1/topics/{topic}/manifest").json()
            if found["compacted_seq"]:
                return
            self.produce(topic, 100, keys=50)  # what lies behind is tidied
            time.sleep(0.2)
        raise AssertionError(f"not compacted after {WAIT_S} s: {found}")


def value_of(number: int, size: int = 20) -> bytes:
    """Says which record it is; of bytes that do not compress when it is longer."""
    text = b"%020d" % number
    if size > len(text):
        noise = (number * 2654435761 % 2**64).to_bytes(8, "big")
        text += (noise * (size // 8 + 1))[: size - len(text)]
    return text


@pytest.fixture(scope="session")
def house(moto_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    bucket = Bucket.s3(moto_server.new_bucket(), moto_server.port)
    flags = ["--tidy-bytes", "1KiB", "--tidy-young", "0ms", "--compression", "none"]
    flags += ["--linger", "10ms"]  # in place of a second for each write on S3
    seb = SebProcess(bucket, tmp_path_factory.mktemp("seb") / "local", flags)
    try:
        asyncio.run(seb.ready(within_s=WAIT_S))
        made = House(seb, bucket)
        yield made
        made.appliance.close()
    finally:
        seb.kill()

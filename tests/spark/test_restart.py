"""The appliance is killed and started again under a job: nothing is lost or doubled.

Only SEB_TEST_SPARK_FAULTS=1 runs this.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark import InheritableThread
from pyspark_seb.client import Appliance

from tests.server.serving import free_port, serving
from tests.spark.conftest import House

pytestmark = pytest.mark.skipif(
    "SEB_TEST_SPARK_FAULTS" not in os.environ, reason="SEB_TEST_SPARK_FAULTS is not set"
)


class Restarted(House):
    """A house whose appliance is where it was before."""

    def __init__(self, port: int, token_file: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.token_file = str(token_file)
        self.appliance = Appliance(self.url, self.token_file)


def test_a_job_outlasts_a_killed_appliance(spark, tmp_path) -> None:
    port, count = free_port(), 400_000
    with serving(tmp_path, port=port) as first:
        house = Restarted(port, first.data / "admin.key")
        house.produce("numbers", count)
        failures: list[str] = []

        def copy() -> None:
            try:
                records = spark.read.format("seb").options(**house.options(topics="numbers"))
                frame = records.option("minPartitions", 8).load().select("key", "value")
                writer = frame.write.format("seb").mode("append")
                writer.options(**house.options(topic="copy")).save()
            except BaseException as error:
                failures.append(str(error))

        job = InheritableThread(target=copy)  # a plain one has no Spark session
        job.start()
        while not house.exists("copy") and job.is_alive():
            pass
        first.process.kill()
        first.process.wait()
    with serving(tmp_path, port=port):
        job.join(300)
        assert failures == []
        read = spark.read.format("seb").options(**house.options(topics="copy")).load()
        values = [bytes(row.value) for row in read.select("value").collect()]
    assert sorted(values) == [b"%020d" % n for n in range(count)]

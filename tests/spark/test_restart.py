"""The appliance is killed and started again under a job: nothing is lost or doubled.

Only SEB_TEST_SPARK_FAULTS=1 runs this.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
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
    with ExitStack() as stack:
        first = stack.enter_context(serving(tmp_path, port=port))
        house = Restarted(port, first.data / "admin.key")
        house.produce("numbers", count)

        def restart() -> None:
            watching = Restarted(port, first.data / "admin.key")
            while not watching.exists("copy"):
                pass
            watching.appliance.close()
            first.process.kill()
            first.process.wait()
            stack.enter_context(serving(tmp_path, port=port))

        killer = threading.Thread(target=restart)
        killer.start()
        records = spark.read.format("seb").options(**house.options(topics="numbers"))
        frame = records.option("minPartitions", 8).load().select("key", "value")
        frame.write.format("seb").mode("append").options(**house.options(topic="copy")).save()
        killer.join()
        read = spark.read.format("seb").options(**house.options(topics="copy")).load()
        values = [bytes(row.value) for row in read.select("value").collect()]
        house.appliance.close()
    assert sorted(values) == [b"%020d" % n for n in range(count)]

"""A cluster whose machines have nothing of ours: the connector comes with the job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster, cluster, wheel
from tests.spark.conftest import House, value_of

JOB = Path(__file__).with_name("reads_streams_writes.py")
COUNT = 20_000


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if shutil.which("java") is None:
        pytest.skip("no Java here: sh .ci/install-java")
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def values(house: House, topic: str) -> list[bytes]:
    found: list[bytes] = []
    offset, end = 0, house.log_end(topic)
    while offset < end:
        answer = house.appliance.get(f"/v1/topics/{topic}/records", offset=offset, until=end).json()
        found += [record["value"].encode() for record in answer["records"]]
        offset = answer["next_offset"]
    return found


@pytest.mark.neighbours  # six JVMs
def test_executors_get_the_connector_with_the_job(house, machines, tmp_path: Path) -> None:
    """The wheel, named .zip: Spark puts no other name of an archive on Python's path."""
    topic = house.name()
    house.produce(topic, COUNT)
    shipped = shutil.copy(wheel(tmp_path), tmp_path / "pyspark_seb.zip")
    arguments = [house.url, house.token_file, topic, tmp_path / "checkpoint", "register"]
    shown = machines.submit(JOB, *arguments, py_files=shipped)
    done = json.loads(shown.partition("DONE ")[2])
    assert done["rows"] == COUNT
    assert done["places"]
    assert all("pyspark_seb.zip/pyspark_seb/" in place for place in done["places"])
    wanted = [value_of(n) for n in range(COUNT)]
    assert sorted(values(house, f"{topic}.copied")) == wanted
    assert sorted(values(house, f"{topic}.streamed")) == wanted
    assert house.committed(topic, topic) == COUNT

"""`seb bench` as a process: an appliance of its own, a null server, an interrupt."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.s3_server import STORE, s3_server
from seb_appliance.bench.plan import MQTT_OTHERS
from tests.server.serving import ENVIRONMENT, serving

pytestmark = [pytest.mark.slow, pytest.mark.measured]

PATH = f"{os.environ['PATH']}:/usr/sbin"
BENCH = (sys.executable, "-m", "seb_appliance", "bench")


def bench(*options: str, code: int = 0, **variables: str) -> dict[str, Any]:
    finished = subprocess.run(
        [*BENCH, *options, "--json"],
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == code, finished.stdout + finished.stderr
    result: dict[str, Any] = json.loads(finished.stdout)
    assert result["verified"]["mistakes"] == []
    return result


def test_an_appliance_of_its_own_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    options = ("--duration", "1s", "--store-latency", "40ms", "--linger", "1ms")
    result = bench(
        "produce", "--embedded", *options, "--connections", "1", "--directory", str(tmp_path)
    )
    latency = dict(result["rows"][0]["latency"]["at"])
    assert latency[50.0] >= 41_000
    assert result["appliance"]["peak_bytes"] > 2**20
    assert result["appliance"]["cpu_us_per_request"] > 0
    assert list(tmp_path.iterdir()) == []


def test_an_appliance_of_its_own_may_have_its_bucket_on_s3() -> None:
    options = ("--duration", "500ms", "--connections", "8")
    with s3_server(0.05) as variables:
        result = bench("produce", "--embedded", "--store", STORE, *options, **variables)
    assert dict(result["rows"][0]["latency"]["at"])[50.0] >= 50_000
    assert not result["appliance"]["holds_bucket"]


def test_end_to_end_on_a_disk_is_told_beside_its_fsync(tmp_path: Path) -> None:
    options = ("--duration", "1s", "--linger", "1ms", "--rate", "100")
    result = bench("e2e", "--embedded", *options, "--directory", str(tmp_path))
    fsync = result["fsync"]
    assert fsync["samples"] > 5
    assert fsync["allowed_us"] == 10_000 + 2 * fsync["p99_us"]
    assert fsync["held"] in (True, False)


@pytest.mark.parametrize("workload", ["produce", "consume"])
def test_a_run_is_compared_with_a_null_server(workload: str) -> None:
    options = ("--store", "memory", "--duration", "500ms", "--connections", "8")
    result = bench(workload, "--embedded", *options, "--against", "null")
    against = result["against"]
    assert len(against["ratios"]) == 5
    assert min(against["ratios"]) <= against["median"] <= max(against["ratios"])
    assert 0 < against["median"] < 2


def test_an_interrupt_leaves_a_report_of_what_was_measured(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        command = [*BENCH, "produce", "--duration", "1h", "--warm-up", "0", "--json"]
        command += ["--url", f"http://127.0.0.1:{running.port}"]
        command += ["--key-file", str(running.data / "admin.key")]
        process = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            wait_for_records(running.request)
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 130, err
        result = json.loads(out)
        assert not result["is_whole"]
        assert result["rows"][0]["requests"] > 0
        assert result["verified"]["mistakes"] == []


def test_an_appliance_that_goes_away_ends_the_run_with_what_was_measured(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        command = [*BENCH, "produce", "--duration", "1h", "--warm-up", "0"]
        command += ["--url", f"http://127.0.0.1:{running.port}"]
        command += ["--key-file", str(running.data / "admin.key")]
        process = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            wait_for_records(running.request)
            running.stop(signal.SIGKILL)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 69, err
        assert "cannot reach" in err
        assert "requests/s" in out


def wait_for_records(request: Any) -> None:
    """Until a topic of the bench has some."""
    while True:
        topics = json.loads(request("GET", "/v1/topics")[1])["topics"]
        if any(topic["log_end_offset"] > 50 for topic in topics):
            return


def test_mqtt_is_measured_beside_others_and_every_message_is_checked() -> None:
    others = [name for name in MQTT_OTHERS if shutil.which(name, path=PATH)]
    against = [flag for name in others for flag in ("--against", name)]
    command = [*BENCH, "mqtt", "--embedded", "--duration", "300ms", *against, "--json"]
    finished = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    rows = json.loads(finished.stdout)["rows"]
    assert len(rows) == 8 * (1 + len(others))
    for row in rows:
        assert row["wrong"] == 0
        assert row["in_per_s"] > 0
        assert (row["out_per_s"] > 0) == (row["shape"] != "in"), row
        assert (row["latency"] is None) == (row["shape"] == "in" and row["qos"] == 0)

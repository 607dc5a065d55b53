"""What a start on a directory imports, and what it costs in time and memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT
from tests.support.servers.s3_server import free_port
from tests.support.yardstick import at_this_speed

# Runs `seb serve` until it answers, and stops it as an operator does.
SERVE = """
import json, os, resource, signal, socket, sys, threading, time

port, data = int(sys.argv[1]), sys.argv[2]
found = {}

def look():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
                one.sendall(b"GET /health HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
                if one.recv(100):
                    break
        except OSError:
            time.sleep(0.005)
    found["cpu_s"] = time.process_time()
    with open("/proc/self/status") as status:
        found["rss_kib"] = next(int(line.split()[1]) for line in status if "VmRSS" in line)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=look, daemon=True).start()
from seb_appliance.cli import run

where = ["--port", str(port), "--data", data, "--bucket", f"file:{data}-bucket"]
found["exit_code"] = run(["serve", *where])
found["modules"] = list(sys.modules)
with open(f"{data}.json", "w") as out:
    json.dump(found, out)
"""
NEEDED_ELSEWHERE = {
    "alembic",  # to migrate the state of an older release
    "boto3",  # for a bucket on S3
    "botocore",
    "opentelemetry.sdk",  # for traces
    "pyarrow",  # for answers of Arrow streams
    "sqlalchemy",  # to migrate
}
CPU_S_MAX = 1.5  # usually 0.7 s; neighbours of the machine count, too
# 62 MiB with the packages of the server alone. Here Litestar finds pydantic, which adds 9 MiB.
IDLE_MIB_MAX = 80


def start_and_stop(data: Path, port: int) -> dict[str, object]:
    environment = {name: x for name, x in os.environ.items() if not name.startswith("SEB_")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", SERVE, str(port), str(data)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment, timeout=120)
    found: dict[str, object] = json.loads(Path(f"{data}.json").read_text())
    assert found["exit_code"] == 0
    return found


def test_a_start_on_a_directory_imports_only_what_it_uses(tmp_path: Path) -> None:
    for state in ("new", "up to date"):
        modules = start_and_stop(tmp_path / "data", free_port())["modules"]
        assert isinstance(modules, list)
        assert not NEEDED_ELSEWHERE & set(modules), state


@pytest.mark.slow
@pytest.mark.measured
def test_a_start_on_a_directory_is_quick_and_small(tmp_path: Path) -> None:
    starts = [start_and_stop(tmp_path / "data", free_port()) for _ in range(4)][1:]
    cpu_s = statistics.median(float(str(start["cpu_s"])) for start in starts)
    idle_mib = statistics.median(int(str(start["rss_kib"])) for start in starts) / 1024
    print(f"start: {cpu_s:.2f} s of processor time, {idle_mib:.1f} MiB")
    assert cpu_s < at_this_speed(CPU_S_MAX)
    assert idle_mib < IDLE_MIB_MAX

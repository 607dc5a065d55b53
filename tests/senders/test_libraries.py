"""Programs that log with a library: each sends with the file of the cookbook, over a kill, too.
What pip installs is there; winston-loki is installed by install.sh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.senders.cookbook import Prepared, look, prepare
from tests.senders.deaths import WITHIN_S, killed_and_back
from tests.senders.shippers import INSTALLED
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.slow

NODE = shutil.which("node") or "node"
MODULES = INSTALLED / "node_modules"
HAS_NODE = shutil.which("node") is not None and (MODULES / "winston-loki").exists()
OF_NODE = pytest.mark.skipif(not HAS_NODE, reason="winston-loki: make neighbours installs it")
SENDERS = (
    "otel-python",
    "loki-python",
    "splunk-python",
    pytest.param("loki-node", marks=[pytest.mark.neighbours, OF_NODE]),
)
COUNT = 40
# The first append: a library that sends little at once may have no third one.
FAILPOINTS = ("K2:kill:1", "K10:kill:1")
SENT = [f"bottle {number}" for number in range(COUNT)]
# Without pytest's own filter of warnings.
ENVIRONMENT = {**os.environ, "PYTHONWARNINGS": "", "NODE_PATH": str(MODULES)}


def send(sender: str, prepared: Prepared, seb: Serving, folder: Path) -> str:
    """What the program prints."""
    program, name = (NODE, "send.js") if sender == "loki-node" else (sys.executable, "send.py")
    command = [program, prepared.file(name, seb, folder), str(COUNT)]
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def records(seb: Serving, sender: str) -> list[dict[str, object]]:
    _, body = seb.request("GET", f"/v1/topics/logs.{sender}/records")
    found: list[dict[str, object]] = json.loads(body)["records"]
    return found


def texts(seb: Serving, sender: str) -> list[str]:
    lines = look(seb, sender)
    if not sender.startswith("otel"):
        return lines
    documents = [json.loads(line)["resourceLogs"][0] for line in lines]
    return [one["scopeLogs"][0]["logRecords"][0]["body"]["stringValue"] for one in documents]


@pytest.mark.parametrize("sender", SENDERS)
def test_what_a_program_logs_is_a_record_each(tmp_path: Path, sender: str) -> None:
    with serving(tmp_path) as seb:
        send(sender, prepare(seb, sender), seb, tmp_path)
        assert texts(seb, sender) == SENT
        found = records(seb, sender)
    for record in found:
        assert "shop" in json.dumps(record)
        assert str(record["timestamp"]).startswith("20")


@pytest.mark.neighbours
@pytest.mark.parametrize("failpoint", FAILPOINTS)
@pytest.mark.parametrize("sender", SENDERS)
def test_nothing_that_a_program_logs_is_lost_over_a_kill(
    tmp_path: Path, sender: str, failpoint: str
) -> None:
    with serving(tmp_path) as seb:
        prepared = prepare(seb, sender)
    with killed_and_back(
        tmp_path, seb.port, failpoint, lambda: send(sender, prepared, seb, tmp_path)
    ) as again:
        found = Counter(texts(again, sender))
    assert set(found) == set(SENT)
    if failpoint.startswith("K2"):  # it was not stored before the kill
        assert set(found.values()) == {1}

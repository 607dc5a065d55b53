"""The client and the commands over HTTP need nothing that only POSIX systems have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.serving import serving

pytestmark = pytest.mark.slow

# An import of a module that is None in sys.modules fails, as it would on a system without it.
PROGRAM = """
import os, sys
for name in ("fcntl", "termios", "resource", "pwd", "grp", "tty", "uvloop", "httptools"):
    sys.modules[name] = None

from seb_appliance.cli import run
from seb_appliance.client import Consumer, Producer

url, key = os.environ["SEB_URL"], open(os.environ["SEB_KEY_FILE"]).read().strip()
with Producer(url, key) as producer:
    producer.send("greetings", "from elsewhere")
with Consumer(url, key, "greetings", follow=False) as consumer:
    print([record.text() for record in consumer], flush=True)
sys.exit(run(["topics", "list"]))
"""


def test_the_client_and_the_commands_work_without_posix_modules(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={
                **os.environ,
                "SEB_URL": f"http://127.0.0.1:{running.port}",
                "SEB_KEY_FILE": str(running.data / "admin.key"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert "['from elsewhere']" in done.stdout
    assert "greetings" in done.stdout

"""A leased consumer that is stopped past its lease, and wakes up after another took over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.serving import ENVIRONMENT, Serving, serving

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("leased_consumer.py")


@contextmanager
def consumer(running: Serving, holder: str, records: int) -> Iterator[subprocess.Popen[str]]:
    key = (running.data / "admin.key").read_text().strip()
    command = [sys.executable, str(PROGRAM), str(running.port), key, holder, str(records)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def stop(process: subprocess.Popen[str]) -> None:
    """SIGSTOP, and wait until it stands still."""
    process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def group(running: Serving) -> dict:
    return json.loads(running.request("GET", "/v1/groups/g")[1])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_zombie_cannot_rewind_its_group(tmp_path: Path, restarted: bool) -> None:
    with serving(tmp_path) as running:
        for _ in range(8):
            assert running.request("POST", "/v1/topics/t/records", b"x")[0] == 201
        with consumer(running, "zombie", 3) as zombie:
            assert says(zombie) == "read 3"
            stop(zombie)
            go_on(zombie)  # it lies in the pipe until the zombie wakes up
            with consumer(running, "heir", 8) as heir:  # waits until the lease has run out
                assert says(heir) == "read 8"
                go_on(heir)
                assert says(heir) == "commit 200 None"
            if restarted:  # the heir's lease is over, or lives on: the zombie's is dead
                assert running.stop() == 0
                with serving(tmp_path, port=running.port):
                    _wake_in_vain(running, zombie)
            else:
                _wake_in_vain(running, zombie)


def _wake_in_vain(running: Serving, zombie: subprocess.Popen[str]) -> None:
    before = group(running)["topics"]
    zombie.send_signal(signal.SIGCONT)
    assert says(zombie) == "commit 409 stale_generation"
    [topic] = group(running)["topics"]
    assert topic["committed_offset"] == 8
    assert topic["last_commit"] == before[0]["last_commit"]

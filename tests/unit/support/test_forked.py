"""A fork of the process that has imported the appliance is an appliance like any other."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT, Bucket, SebProcess

pytestmark = pytest.mark.slow


async def test_a_fork_is_started_stopped_and_killed_as_any_process(tmp_path: Path) -> None:
    bucket = Bucket.directory(tmp_path / "bucket")
    seb = SebProcess(bucket, tmp_path / "data")
    await seb.ready()
    assert os.getpgid(seb.process.pid) == os.getpgid(0)
    assert seb.process.pid != os.getpid()
    assert seb.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        seb.process.wait(0.001)
    seb.process.terminate()
    assert await seb.ended() == 0
    assert "admin key" in seb.shown
    again = SebProcess(bucket, tmp_path / "data")
    await again.ready()
    again.kill()
    assert again.process.returncode == again.process.wait() == -signal.SIGKILL
    assert not Path(f"/proc/{again.process.pid}").exists()
    again.kill()  # has no effect


async def test_a_fork_has_its_own_environment_and_tells_its_exit_code(tmp_path: Path) -> None:
    bucket = Bucket(f"file:{tmp_path / 'bucket'}", {"SEB_LINGER": "no time"})
    seb = SebProcess(bucket, tmp_path / "data")
    assert await seb.ended() == 78
    assert "SEB_LINGER" in seb.shown
    dying = SebProcess(Bucket.directory(tmp_path / "bucket"), tmp_path / "data", fail="K19:kill:1")
    assert await dying.ended() == -signal.SIGKILL


def test_forks_die_with_who_asked_for_them(tmp_path: Path) -> None:
    program = f"""
import os, pathlib
from tests.support.process import Bucket, SebProcess
folder = pathlib.Path({str(tmp_path)!r})
print(SebProcess(Bucket.directory(folder / "bucket"), folder / "data").process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    assert done.returncode == -signal.SIGKILL
    with contextlib.suppress(ProcessLookupError):
        ended = select.poll()
        ended.register(os.pidfd_open(int(done.stdout)), select.POLLIN)
        assert ended.poll(60_000)

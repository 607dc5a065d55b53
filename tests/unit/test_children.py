"""The child processes of the appliance, when their parent is killed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import seb_appliance
from seb_appliance.tasks import Child


@pytest.mark.slow
@pytest.mark.parametrize("child", ["tidier_child", "check_child"])
def test_a_child_whose_parent_was_killed_meanwhile_ends_without_a_word(child: str) -> None:
    command = [sys.executable, "-m", f"seb_appliance.ops.jobs.{child}"]
    ended = subprocess.run(command, input=b"", capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


async def test_a_child_whose_start_is_cancelled_is_ended_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )
    starting = asyncio.create_task(Child.start("seb_appliance.ops.jobs.check_child", None))
    while not started:
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    (process,) = started
    assert process.returncode is not None
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_no_child_is_started_by_the_event_loop_which_would_fork():
    """uvloop's fork takes 30 ms of a process with 400 MB; `tasks.Child` takes 4. A command is no
    appliance: `seb work` starts what it is told."""
    folder = Path(seb_appliance.__file__).parent
    ways = re.compile(r"create_subprocess_|subprocess_exec\(")
    found = [path for path in folder.rglob("*.py") if ways.search(path.read_text())]
    assert [path for path in found if "cli" not in path.relative_to(folder).parts] == []

"""The child processes of the appliance, when their parent is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("child", ["tidier_child", "check_child"])
def test_a_child_whose_parent_was_killed_meanwhile_ends_without_a_word(child: str) -> None:
    command = [sys.executable, "-m", f"seb_appliance.ops.jobs.{child}"]
    ended = subprocess.run(command, input=b"", capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")

"""The demonstration of the README, on this machine's log and on the sample."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "package-log"

pytestmark = pytest.mark.slow


@cache
def demo(*arguments: str) -> str:
    """What it prints; run once with the same arguments."""
    finished = subprocess.run(
        [sys.executable, EXAMPLE / "demo.py", *arguments],
        cwd=EXAMPLE.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def check(shown: str) -> tuple[int, int]:
    """The counts of lines and packages that a good demonstration tells."""
    lines = re.search(r"dpkg\.log: ([\d,]+) lines → topic demo\.packages … acknowledged", shown)
    back = re.search(r"read back ([\d,]+) records · ([\d,]+) packages .* agrees on every", shown)
    view = re.search(r"view=latest of ([\d,]+) records: .* ([\d,]+) packages, .* every", shown)
    assert lines is not None, shown
    assert back is not None, shown
    assert view is not None, shown
    assert (lines[1], back[2]) == (back[1], view[2])
    return int(back[1].replace(",", "")), int(back[2].replace(",", ""))


def test_the_packages_rebuilt_from_the_topic_are_those_of_this_machine() -> None:
    lines, packages = check(demo())
    assert lines > packages > 0


def test_the_newest_records_are_the_packages_however_long_the_log_is() -> None:
    once = [re.sub(r"[\d.]+ s", "", line) for line in demo().splitlines()]
    often = [re.sub(r"[\d.]+ s", "", line) for line in demo("--times", "5").splitlines()]
    assert "lines, 5 times →" in often[0]
    assert once[1] == often[1]
    assert once[2].partition("records: ")[2] == often[2].partition("records: ")[2]


def test_a_machine_without_a_log_reads_the_sample() -> None:
    shown = demo("--log", "/nowhere/dpkg.log")
    assert "reading dpkg.log of the example's folder sample/" in shown
    assert check(shown) == (106, 8)
    assert "1 are older than the log" in shown


def test_the_command_runs_the_demonstration() -> None:
    command = [sys.executable, "-m", "seb_appliance", "demo"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    check(finished.stdout)

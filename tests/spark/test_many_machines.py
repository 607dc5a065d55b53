"""The example of many machines: six of them are lost, and each order counts once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "many-machines"


@pytest.mark.neighbours  # eight processes and three minutes and more: too much beside other tests
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java here: sh .ci/install-java")
def test_the_example_of_many_machines_is_exact() -> None:
    shown = subprocess.run(
        [sys.executable, EXAMPLE / "run.py", "--orders", "1400"],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    for victim in ("worker-1", "master", "shop", "job", "worker-2", "bank"):
        assert f"lost {victim}" in shown.stdout
    assert "table: 1,400 rows, 0 lost, 0 doubled, 0 wrong" in shown.stdout
    assert "topic: 1,400 rows, 0 lost, 0 doubled, 0 wrong" in shown.stdout


def test_its_plan_is_the_one_that_is_documented() -> None:
    plan = [sys.executable, EXAMPLE / "plan.py"]
    shown = subprocess.run(plan, capture_output=True, text=True, check=True).stdout
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert "".join(f"    {line}\n" for line in shown.splitlines()) in page

"""Asks the quick tests of the four paths (paths.toml) for every branch of their files.

    python -m tests.paths.covering

Fails, and names the lines, when one is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.paths.table import ROOT, mapped

SETTINGS = Path(__file__).with_name("coverage.ini")
DATA = ROOT / ".state" / "coverage"


def coverage(*arguments: str) -> int:
    command = [sys.executable, "-m", "coverage", arguments[0], f"--rcfile={SETTINGS}"]
    environment = {**os.environ, "COVERAGE_FILE": str(DATA)}
    return subprocess.run([*command, *arguments[1:]], cwd=ROOT, env=environment).returncode


def main(arguments: Sequence[str]) -> int:
    DATA.parent.mkdir(exist_ok=True)
    files = ",".join(of.file for of in mapped())
    tests = dict.fromkeys(test for of in mapped() for test in of.tests)
    options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", *arguments, *tests]
    failed = coverage("run", f"--include={files}", "-m", "pytest", *options)
    return failed or coverage("report")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

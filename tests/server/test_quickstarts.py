"""The quickstarts run, as they stand, where their language is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.serving import serving

PAGE = (Path(__file__).parents[2] / "docs" / "QUICKSTARTS.md").read_text(encoding="utf-8")
# Name in the page → program, arguments before the file, name of the file, what it prints.
LANGUAGES = {
    "bash": ("bash", "-eu", "quick.sh", "hello from curl"),
    "python": (sys.executable, "-P", "quick.py", "0 hello from Python"),
    "javascript": ("node", "--no-warnings", "quick.mjs", "0 hello from JavaScript"),
    "go": ("go", "run", "quick.go", "0 hello from Go"),  # compiles the library first
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_users_start_it")]


@pytest.mark.parametrize(
    "language",
    [pytest.param(one, marks=[pytest.mark.neighbours] * (one == "go")) for one in LANGUAGES],
)
def test_a_quickstart_stores_a_record_and_reads_it_back(language: str, tmp_path: Path) -> None:
    program, argument, name, printed = LANGUAGES[language]
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    with serving(tmp_path) as running:
        file = tmp_path / name
        file.write_text(text.replace("51313", str(running.port)), encoding="utf-8")
        done = subprocess.run(
            [program, argument, str(file)],
            env={**os.environ, "API_KEY": (running.data / "admin.key").read_text().strip()},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout

"""The first page runs: its commands are run as they stand, and answer what it shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.serving import serving

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_users_start_it")]


def first_block() -> list[str]:
    """The lines of the block that begins with reading the admin key."""
    start = README.index("    key=$(cat")
    block = re.match(r"(?:(?: {4}.*)?\n)+", README[start:])
    assert block is not None
    return [line.strip() for line in block[0].splitlines() if line.strip()]


def without_times(answer: str) -> object:
    """The answer's JSON with its timestamps replaced."""
    return json.loads(re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", answer))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_first_commands_answer_what_the_readme_shows(tmp_path: Path) -> None:
    lines = first_block()
    shown = [line for line in lines if line.startswith("{")]
    commands = [line for line in lines if line not in shown]
    with serving(tmp_path) as running:
        script = "\necho\n".join(commands).replace("curl", "curl -sS")
        script = script.replace("seb-data/local", str(running.data))
        script = script.replace("51313", str(running.port)).replace("wait=30s", "wait=50ms")
        answers = subprocess.run(
            ["bash", "-euc", script], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split("\n")
        answers = [answer for answer in answers if answer]
    assert [without_times(answer) for answer in answers[:2]] == [without_times(x) for x in shown]
    assert json.loads(answers[2])["records"] == []


def test_the_default_settings_are_those_that_the_readme_speaks_of() -> None:
    for text in ("seb-data/local/admin.key", "http://127.0.0.1:51313/v1/topics"):
        assert text in README

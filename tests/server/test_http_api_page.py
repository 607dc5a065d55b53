"""The commands of docs/HTTP_API.md run as they stand, and answer what the page shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.serving import serving

PAGE = (Path(__file__).parents[2] / "docs" / "HTTP_API.md").read_text(encoding="utf-8")
END = "=== end of an answer ==="
EXAMPLES_MIN = 25

pytestmark = pytest.mark.slow


def examples() -> tuple[list[str], list[tuple[str, str]]]:
    """The assignments of the first block; then each command with the answer that is shown."""
    lines = iter(re.findall(r"^ {4}(.*)$", PAGE, re.MULTILINE))
    settings, found = [], []
    for line in lines:
        if line.startswith(("curl ", "printf ")):
            command = line
            while command.endswith(("\\", "|")) or command.count("'") % 2:
                command += "\n" + next(lines)
            found.append((command, ""))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
        else:
            settings.append(line)
    return settings, found


def answers(shown: str, got: str) -> bool:
    """Whether an answer is as shown, where `…` stands for anything and a time for any time."""
    pattern = re.escape(shown.strip()).replace("…", "(?s:.*?)")
    pattern = re.sub(r"\d{4}\\-\d\d\\-\d\dT[\d:\\.]+Z", r"[\\dTZ:.-]+", pattern)
    got = re.sub(r"\n\s*\n", "\n", got.replace("\r", "")).strip()
    return re.fullmatch(pattern, got) is not None


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page_answer_what_it_shows(tmp_path: Path) -> None:
    settings, found = examples()
    assert len(found) >= EXAMPLES_MIN
    with serving(tmp_path) as running:
        commands = [command.replace("curl", "curl -sS") for command, _ in found]
        script = f"\necho '{END}'\n".join(["\n".join(settings), *commands])
        script = script.replace("seb-data/local", str(running.data))
        script = script.replace("51313", str(running.port))
        output = subprocess.run(
            ["bash", "-euc", script], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split(f"{END}\n")
    for (command, shown), got in zip(found, output[1:], strict=True):
        assert answers(shown, got), f"{command}\n\nshown:\n{shown}\ngot:\n{got}"

"""Tutorial and cookbook run: commands are run as they stand, in order, and print what is shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.s3_server import free_port

DOCS = Path(__file__).parents[2] / "docs"
# Blocks of commands in each page, at least.
PAGES = {"TUTORIAL.md": 9, "COOKBOOK.md": 9}
END = "the block has ended"
# `seb serve &` returns before the appliance is ready.
WAIT = "until curl -sf $SEB_URL/readyz > /dev/null; do sleep 0.1; done"

pytestmark = pytest.mark.slow


def blocks(page: str) -> list[tuple[str, str]]:
    """The commands of each block, and what the page shows of them; "" if nothing."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"```(bash|text)\n(.*?)```", text, re.DOTALL)
    return [
        (text, found[i + 1][1] if found[i + 1 : i + 2] and found[i + 1][0] == "text" else "")
        for i, (kind, text) in enumerate(found)
        if kind == "bash"
    ]


def as_shown(printed: str, shown: str) -> bool:
    """`…` stands for anything in a line."""
    pattern = ".*".join(map(re.escape, shown.strip().split("…")))
    return re.fullmatch(pattern, printed.strip()) is not None


def _with(commands: str, port: int, mqtt_port: int) -> str:
    return commands.replace("51313", str(port)).replace("1883", str(mqtt_port))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    port, mqtt_port = free_port(), free_port()
    parts = []
    for commands, _ in blocks(page):
        waits = f"\n{WAIT}" if "seb serve" in commands else ""
        parts.append(f"{_with(commands, port, mqtt_port)}{waits}\necho '{END}'\n")
    script = "trap 'kill $server; wait $server' EXIT\n" + "".join(parts)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SEB_PORT": str(port),
        "SEB_URL": f"http://127.0.0.1:{port}",
    }
    done = subprocess.run(
        ["bash", "-uc", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=180,
    )
    printed = done.stdout.split(f"{END}\n")
    assert len(printed) == len(blocks(page)) + 1, done.stdout
    for (commands, shown), said in zip(blocks(page), printed, strict=False):
        if shown:
            assert as_shown(said, shown), f"{commands}\n{said}"


@pytest.mark.parametrize("page", PAGES)
def test_every_step_has_commands(page: str) -> None:
    assert len(blocks(page)) >= PAGES[page]

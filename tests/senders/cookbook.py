"""The pages of docs/senders as tests use them: their commands and their files, as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.server.serving import ENVIRONMENT, Serving
from tests.support.process import ROOT

COOKBOOK = ROOT / "docs" / "senders"
PORT = "51313"  # in commands and files; tests replace it, API_KEY and SECRET
SYSLOG_PORT = "6514"  # the same
PREPARE, LOOK = "On the appliance", "Look at the result"
WITHIN_S = 60.0
_SECRET_END = "=== the secret ==="


@dataclass(frozen=True)
class Prepared:
    """What the commands of a page made for its sender. `api_key`, `secret`: "" for none.
    `syslog_port`: 0 for none."""

    sender: str
    api_key: str
    secret: str
    syslog_port: int = 0

    def file(self, name: str, seb: Serving, folder: Path) -> Path:
        """The sender's own file, with address, API key and secret of this appliance."""
        text = (COOKBOOK / self.sender / name).read_text(encoding="utf-8")
        text = text.replace(PORT, str(seb.port))
        text = text.replace("API_KEY", self.api_key).replace("SECRET", self.secret)
        if self.syslog_port:
            text = text.replace(SYSLOG_PORT, str(self.syslog_port))
        saved = folder / name
        saved.write_text(text, encoding="utf-8")
        return saved


def code(sender: str, section: str) -> str:
    """The commands of a section of a page."""
    text = (COOKBOOK / sender / "README.md").read_text(encoding="utf-8")
    found = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"^ {4}(.*)$", found, re.MULTILINE)) + "\n"


def run(seb: Serving, sender: str, section: str, *, secret: str = "") -> str:
    """What the commands of a section print. `secret`: what the sender's owner enters."""
    prelude = f'seb() {{ "{sys.executable}" -m seb_appliance "$@"; }}\n{code(".", PREPARE)}'
    script = prelude + code(sender, section).replace("SECRET", secret)
    script = script.replace("seb-data/local", str(seb.data)).replace(PORT, str(seb.port))
    script += f"\necho '{_SECRET_END}'\"${{secret-}}\"\n"
    done = subprocess.run(
        ["bash", "-euc", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def prepare(seb: Serving, sender: str, *, secret: str = "") -> Prepared:
    """Run what a page says about the appliance."""
    shown, _, made = run(seb, sender, PREPARE, secret=secret).partition(_SECRET_END)
    key = re.search(r"\bseb_[\w-]{59}(?![\w-])", shown)
    return Prepared(sender, key[0] if key else "", made.strip())


def look(seb: Serving, sender: str) -> list[str]:
    """The lines that the last section of a page shows."""
    return run(seb, sender, LOOK).partition(_SECRET_END)[0].splitlines()


def wait_for(seb: Serving, sender: str, enough: Callable[[list[str]], bool]) -> list[str]:
    """What `look` shows as soon as it is enough."""
    until_s = time.monotonic() + WITHIN_S
    while not enough(lines := look(seb, sender)):
        assert time.monotonic() < until_s, f"{len(lines)} lines: {lines[:5]}"
        time.sleep(0.2)
    return lines

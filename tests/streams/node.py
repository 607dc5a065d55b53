"""Node.js, and what tests/streams/package-lock.json pins, for other people's programs."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.process import ROOT

FOLDER = Path(__file__).parent
_MODULES = FOLDER / "node_modules"
_INSTALLED = _MODULES / ".package-lock.json"
_KINDS = {"x86_64": "x64", "aarch64": "arm64"}


def node() -> str:
    """The one that .ci/install-node brought, or the machine's. Skips where there is none."""
    kind = _KINDS.get(platform.machine(), "")
    brought = ROOT / f".state/node/node_modules/node-linux-{kind}/bin/node"
    found = str(brought) if brought.exists() else shutil.which("node")
    if found is None or shutil.which("npm") is None:
        pytest.skip("no Node.js here: sh .ci/install-node")
    return found


def install_modules() -> Path:
    """`node_modules`, as the lock file says. Of processes that ask together one installs them."""
    wanted = FOLDER / "package-lock.json"
    with wanted.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _INSTALLED.exists() or _INSTALLED.stat().st_mtime < wanted.stat().st_mtime:
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
            subprocess.run(command, cwd=FOLDER, check=True, timeout=300)
    return _MODULES


def run(*arguments: str, url: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """A program of theirs, told where the streams are."""
    return subprocess.run(
        [node(), *arguments],
        cwd=FOLDER,
        env={**os.environ, "SEB_STREAMS_URL": url, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )

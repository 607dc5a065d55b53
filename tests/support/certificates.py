"""Certificates for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(file: Path) -> None:
    """A new one, with its key."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
               "-subj", "/CN=localhost", "-keyout", "key", "-out", "cert"]  # fmt: skip
    subprocess.run(command, cwd=file.parent, check=True, capture_output=True)
    file.write_text("".join((file.parent / part).read_text() for part in ("cert", "key")))

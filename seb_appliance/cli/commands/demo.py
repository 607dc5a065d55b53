"""`seb demo`: the example `examples/package-log`, on an appliance that is gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import click

from seb_appliance.bundled import bundled
from seb_appliance.cli.errors import need_server


@click.command
def demo() -> int:
    """Run the demonstration, on an appliance of its own.

    Each line of this machine's package log becomes a record. The installed packages are rebuilt
    from the records and compared with those of dpkg; a machine without dpkg uses a sample. The
    appliance runs in a temporary directory, on a free port, and is removed afterwards. Exits with
    1 if anything differs.
    """
    with need_server():
        if find_spec("litestar") is None:
            raise ModuleNotFoundError(name="litestar")
    script = bundled("examples") / "package-log" / "demo.py"
    return subprocess.run([sys.executable, str(script)], check=False).returncode  # noqa: S603

"""`seb serve`: run the appliance until it is stopped or fenced."""

from __future__ import annotations

from pathlib import Path

import click

from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.parts import need_server


@click.command
@with_settings()
def serve(config: Path | None, **flags: str | bool | None) -> int:
    """Run the appliance.

    Each setting can also stand in the settings file, and in a variable: SEB_ and its name in
    capitals. Durations and sizes have units: 250ms, 10s, 7d, 64KiB, 8MiB.
    """
    settings = settings_from(config, flags)
    with need_server():
        from rich.console import Console

        from seb_appliance.app import process
    return process.serve(settings, Console())

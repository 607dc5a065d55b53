"""`seb admin …`: for the person on the machine itself, through the running appliance."""

from __future__ import annotations

from pathlib import Path

import click

from seb_appliance.cli.control_client import ask
from seb_appliance.cli.options import settings_from, with_settings


@click.group
def admin() -> None:
    """Commands for the machine itself; they talk to the running appliance."""


@admin.command
@with_settings("data")
def reset_key(config: Path | None, **flags: str | bool | None) -> None:
    """Make a new admin key, when the file of the old one is lost. Other API keys stay."""
    settings = settings_from(config, flags)
    answer = ask(settings.data, "reset-key")
    click.echo(f"new admin key in {answer['path']}")

"""`seb promote`: make the standby on this machine the writer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from seb_appliance.cli.control_client import ask
from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.output import say, say_json

TIMEOUT_S: Final = 300.0  # a take-over in fencing mode B may have to wait a minute


@click.command
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@with_settings("data")
def promote(as_json: bool, config: Path | None, **flags: str | bool | None) -> None:
    """Make the standby that runs on this machine the writer.

    It reads what there is, takes over, and fences the appliance that it followed: that one
    acknowledges nothing more. When this says that it is the writer, it is.
    """
    settings = settings_from(config, flags)
    answer = ask(settings.data, "promote", timeout_s=TIMEOUT_S)
    if as_json:
        say_json({name: answer[name] for name in ("epoch", "seq", "seconds")})
        return
    say(
        f"the writer now: epoch {answer['epoch']}, entry {answer['seq']:,}, "
        f"after {answer['seconds']:.1f} s"
    )

"""`seb doctor`: is this machine and its bucket fit to run the appliance?"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.outline import outline
from seb_appliance.cli.output import say
from seb_appliance.cli.parts import check_server, need_server


@click.command
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@with_settings()
def doctor(config: Path | None, as_json: bool, **flags: str | bool | None) -> int:
    """Check the settings, the bucket, the clock, the disk and SQLite.

    Tests the bucket with small objects below its probe/ folder. Exit code 0: fit; 69 or 74: the
    bucket is not; 78: a setting is wrong; 1: the server's parts are not installed.
    """
    check_server()
    settings = settings_from(config, flags)
    with need_server():
        from seb_appliance.machine.checkup import checkup
    report = asyncio.run(checkup(settings))
    if as_json:
        say(json.dumps(report.data, indent=2, ensure_ascii=False))
    else:
        settings_lines = {
            name: f"{item['value']}  ({item['source']})"
            for name, item in report.data["settings"].items()
        }
        say(outline(report.data | {"settings": settings_lines}))
    return report.exit_code

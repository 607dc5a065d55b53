"""`seb tail TOPIC`: values as they are stored, until interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from seb_appliance.cli.completing import topic_names
from seb_appliance.cli.consume import Wanted, copy_out
from seb_appliance.cli.reaching import talks

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient


@click.command
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--offset",
    metavar="WHERE",
    default="latest",
    help="A number, earliest, latest, -N (the last N), @time. [latest]",
)
@talks
def tail(client: HttpClient, as_json: bool, topic: str, offset: str) -> None:
    """Write the values of TOPIC's records to stdout, one a line, as they are stored.

    With --json whole records come, one JSON object a line. It goes on until it is interrupted, and
    goes on where it was when the appliance was away for a moment.
    """
    copy_out(client, Wanted(topic, offset, follow=True), as_json=as_json)

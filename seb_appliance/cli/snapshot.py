"""`seb snapshot`: put a snapshot of the state into the bucket, now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.output import say, say_json
from seb_appliance.cli.reaching import talks

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient


@click.command
@talks
def snapshot(client: HttpClient, as_json: bool) -> None:
    """Make a snapshot, so that the next start replays nothing. Needs an admin key."""
    made = client.request("POST", path_of("snapshots")).json()
    if as_json:
        say_json(made)
    else:
        say(f"the newest snapshot is as of entry {made['seq']:,}")

"""`seb consume TOPIC`: values, one a line; or whole records as NDJSON."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from seb_appliance.cli.completing import group_names, topic_names
from seb_appliance.cli.reaching import talks

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

OF_GROUP = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class Wanted:
    """`offset` None: `earliest`. `most`: how many records, None for all."""

    topic: str
    offset: str | None
    until: str | None = None
    most: int | None = None
    follow: bool = False
    group: str | None = None
    commit: bool = False

    def check(self) -> None:
        """Raises UsageError."""
        if self.follow and self.until is not None:
            raise click.UsageError("say either --follow or --until")
        if self.commit and self.group is None:
            raise click.UsageError("--commit needs a --group")
        if self.group is not None and self.offset not in (None, *OF_GROUP):
            raise click.UsageError(
                "with --group it begins at the committed offset; --offset is earliest or latest, "
                "for a group that has none"
            )


@click.command
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--offset",
    metavar="WHERE",
    help="A number, earliest, latest, -N (the last N), @time. [earliest]",
)
@click.option("--until", metavar="WHERE", help="Stop before this offset or @time. [the log end]")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most N records.")
@click.option("--follow", is_flag=True, help="Wait for more at the log end.")
@click.option(
    "--group", metavar="GROUP", help="Begin where GROUP has committed.", shell_complete=group_names
)
@click.option("--commit", is_flag=True, help="Commit for GROUP what was written out.")
@talks
def consume(client: HttpClient, as_json: bool, **asked: Any) -> None:
    """Write the values of TOPIC's records to stdout, one a line, up to the log end of now.

    With --json whole records come, one JSON object a line. Two readers of one group get the same
    records. With --commit an offset is committed after its records were written out, so that
    records may come twice after a failure, but never not at all.
    """
    wanted = Wanted(**asked)
    wanted.check()
    copy_out(client, wanted, as_json=as_json)


def copy_out(client: HttpClient, wanted: Wanted, *, as_json: bool) -> None:
    """Raises CommandError, which says up to where records were written out if stdout is full."""
    from seb_appliance.cli.record_lines import JSON_LINES, VALUE_LINES, copy

    is_terminal = sys.stdout.isatty()
    if as_json:
        copy(client, wanted, JSON_LINES, is_terminal=is_terminal)
    else:
        copy(client, wanted, VALUE_LINES, is_terminal=is_terminal)

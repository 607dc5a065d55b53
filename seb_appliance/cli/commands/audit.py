"""`seb audit`: what operators did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.output import moment, say, say_json, table
from seb_appliance.cli.remote import talks

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

Json = dict[str, Any]

PAGE: Final = 1_000


@click.command
@click.option("--actor", metavar="ID", help="Only what this API key did.")
@click.option("--subject", metavar="NAME", help="Only what was done to this topic, group or key.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most N. [100]")
@click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Only older ones.")
@talks
def audit(
    client: HttpClient,
    as_json: bool,
    actor: str | None,
    subject: str | None,
    most: int | None,
    before: int | None,
) -> None:
    """Show who did what to topics, groups and API keys, newest first. Needs an admin key.

    An actor of - is the appliance itself, or seb admin at the machine. before and after show what
    changed.
    """
    found: list[Json] = []
    left = most or 100
    while left > 0:
        query = {"actor": actor, "subject": subject, "limit": min(left, PAGE), "before": before}
        page = client.request("GET", path_of("audit"), query=query).json()
        found += page["audit"]
        left -= len(page["audit"])
        before = page["next_before"]
        if before is None:
            break
    if as_json:
        say_json({"audit": found, "next_before": before})
        return
    names = ("number", "at", "actor", "from", "action", "subject", "change")
    say(table(names, [_row(action) for action in found], "nothing was done"))


def _row(action: Json) -> tuple[str | int | None, ...]:
    return (
        action["number"],
        moment(action["at"]),
        action["actor"] or None,
        action["address"] or None,
        action["action"],
        action["subject"],
        _change(action["before"], action["after"]),
    )


def _change(before: Json | None, after: Json | None) -> str | None:
    """The members that differ, as JSON; all of them when there was nothing before or after."""
    if before is None or after is None:
        return json.dumps(before or after, ensure_ascii=False) if before or after else None
    differing = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    shown = (
        f"{name}: {_plain(before.get(name))} → {_plain(after.get(name))}" for name in differing
    )
    return ", ".join(shown) or None


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

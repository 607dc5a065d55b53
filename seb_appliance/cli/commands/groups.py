"""`seb groups …`: the offsets of consumer groups, and how to move them."""

from __future__ import annotations

import click

from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask,
    ask_for_the_name,
    group_names,
    talks,
    yes_option,
)
from seb_appliance.cli.output import Cell, moment, outline, size, span, table
from seb_appliance.quantities import counted

group_argument = click.argument("group", shell_complete=group_names)


@click.group(cls=ListsByDefault)
def groups() -> None:
    """Consumer groups: list (the default), show, commit, reset, delete."""


@groups.command("list")
@talks
def list_groups(client: HttpClient) -> Result:
    """List the groups that the API key may see, with their lag."""
    found = list(client.pages("groups", "groups", "after"))
    names = ("group", "topics", "lag", "lag bytes", "lag age", "last commit", "lease", "members")
    return Result({"groups": found}, lambda _: table(names, map(_row, found), "no groups"))


def _lag(row: Json) -> tuple[Cell, ...]:
    lag = (row["lag_records"], size(row["lag_bytes"]), span(row["lag_seconds"]))
    return (*lag, moment(row["last_commit"]))


def _row(group: Json) -> tuple[Cell, ...]:
    holder = None if group["lease"] is None else group["lease"]["holder"]
    return (group["group"], group["topic_count"], *_lag(group), holder, group["member_count"])


@groups.command()
@group_argument
@talks
def show(client: HttpClient, group: str) -> Result:
    """Show the offset of GROUP on each topic, its lag, its lease and its members."""
    return Result(client.ask("GET", "groups", group), _outline)


def _outline(found: Json) -> str:
    lease = found["lease"]
    if lease is not None:
        left = span(lease["expires_in_ms"] / 1000)
        lease = f"{lease['holder']}, generation {lease['generation']}, {left} left"
    members = {
        "group": found["group"],
        "lag": f"{counted(found['lag_records'], 'record')}, {size(found['lag_bytes'])}, "
        f"the oldest {span(found['lag_seconds'])} old",
        "last commit": moment(found["last_commit"]),
        "lease": lease,
        "members": _membership(found["membership"]),
    }
    names = ("topic", "committed", "log end", "lag", "lag bytes", "lag age", "last commit")
    rows = [
        (topic["topic"], topic["committed_offset"], topic["log_end_offset"], *_lag(topic))
        for topic in found["topics"]
    ]
    shown = f"{outline(members)}\n\n{table(names, rows, 'no committed offsets')}"
    return shown if found["membership"] is None else f"{shown}\n\n{_members(found['membership'])}"


def _membership(found: Json | None) -> str | None:
    if found is None:
        return None
    return (
        f"{len(found['members']):,} by the {found['protocol']} protocol, {found['state']}, "
        f"generation {found['generation']:,}, assignor {found['assignor'] or 'not chosen yet'}"
    )


def _members(found: Json) -> str:
    names = ("client", "address", "instance", "subscribed to", "assigned", "member id")
    rows = [
        (
            one["client"],
            one["address"],
            one["instance_id"],
            None if one["subscribed"] is None else " ".join(one["subscribed"]),
            None if one["assigned"] is None else " ".join(one["assigned"]),
            one["member_id"],
        )
        for one in found["members"]
    ]
    return table(names, rows, "")


@groups.command()
@group_argument
@click.argument("offsets", metavar="TOPIC=OFFSET...", nargs=-1, required=True)
@click.option("--allow-backward", is_flag=True, help="Also move an offset back.")
@click.option("--generation", type=click.IntRange(1), metavar="N", help="Generation of the lease.")
@talks
def commit(
    client: HttpClient,
    group: str,
    offsets: tuple[str, ...],
    allow_backward: bool,
    generation: int | None,
) -> Result:
    """Commit for GROUP that OFFSET is the next one to read of TOPIC; all of them or none."""
    wanted = {}
    for item in offsets:
        topic, _, text = item.rpartition("=")
        if not topic or not (text.isascii() and text.isdigit()):
            raise click.UsageError(f"{item!r} is not TOPIC=OFFSET")
        if topic in wanted:
            raise click.UsageError(f"topic {topic} is given twice")
        wanted[topic] = int(text)
    body = {"offsets": wanted, "allow_backward": allow_backward, "generation": generation}
    answer = client.ask("PUT", "groups", group, "offsets", body=body)
    names = ("topic", "committed")
    return Result(answer, lambda _: table(names, answer["offsets"].items(), ""))


@groups.command()
@group_argument
@click.option("--to", metavar="WHERE", help="earliest, latest, an offset, -N (the last N), @time.")
@click.option("--shift", type=int, metavar="N", help="Forward by N records; back if negative.")
@click.option(
    "--topics",
    multiple=True,
    metavar="PATTERN",
    help="Only these: names, or patterns over the group's topics. May be given again.",
)
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@yes_option
@talks
def reset(
    client: HttpClient,
    group: str,
    to: str | None,
    shift: int | None,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> Result:
    """Move the offsets of GROUP, forward or back. Stop its consumers first.

    Shows the offsets before and after, and asks.
    """
    if (to is None) == (shift is None):
        raise click.UsageError("give either --to or --shift")
    path = ("groups", group, "reset")
    body: Json = {"to": to} if to is not None else {"shift": shift}
    if topics:
        body["topics"] = list(topics)
    if dry_run or not yes:
        plan = client.ask("POST", *path, body={**body, "dry_run": True})
        if dry_run:
            return Result(plan, _reset_table)
        click.echo(_reset_table(plan), err=True)
        if plan["topics"]:
            ask(f"Move {group} there?")
    return Result(client.ask("POST", *path, body=body), _reset_table)


def _reset_table(answer: Json) -> str:
    rows = []
    for row in answer["topics"]:
        before, after = row["before"], row["after"]
        rows.append((row["topic"], before, after, None if before is None else after - before))
    return table(("topic", "before", "after", "moves"), rows, "no topic to reset")


@groups.command()
@group_argument
@yes_option
@talks
def delete(client: HttpClient, group: str, yes: bool) -> Result:
    """Delete GROUP: its committed offsets and its lease."""
    if not yes:
        found = client.ask("GET", "groups", group)
        topics = counted(found["topic_count"], "topic")
        ask_for_the_name(f"the group and its offsets on {topics}", group)
    client.request("DELETE", "groups", group)
    return Result({"deleted": group}, f"{group} deleted")

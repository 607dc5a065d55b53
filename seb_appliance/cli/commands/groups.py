"""`seb groups …`: where consumer groups stand, and putting them somewhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.completing import group_names
from seb_appliance.cli.output import moment, outline, say, say_json, size, span, table
from seb_appliance.cli.remote import ListsByDefault, ask, ask_for_the_name, talks, yes_option

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

Json = dict[str, Any]


@click.group(cls=ListsByDefault)
def groups() -> None:
    """Consumer groups: list (also without a command), show, commit, reset, delete."""


@groups.command("list")
@talks
def list_groups(client: HttpClient, as_json: bool) -> None:
    """List the groups that the API key may see, with their lag."""
    listed: list[Json] = []
    after: str | None = None
    while True:
        page = client.request("GET", path_of("groups"), query={"after": after}).json()
        listed += page["groups"]
        after = page["next_after"]
        if after is None:
            break
    if as_json:
        say_json({"groups": listed})
        return
    names = ("group", "topics", "lag", "lag bytes", "lag age", "last commit", "lease")
    say(table(names, [_row(group) for group in listed], "no groups"))


def _row(group: Json) -> tuple[str | int | None, ...]:
    lease = group["lease"]
    return (
        group["group"],
        group["topic_count"],
        group["lag_records"],
        size(group["lag_bytes"]),
        span(group["lag_seconds"]),
        moment(group["last_commit"]),
        None if lease is None else lease["holder"],
    )


@groups.command()
@click.argument("group", shell_complete=group_names)
@talks
def show(client: HttpClient, as_json: bool, group: str) -> None:
    """Show where GROUP stands on each topic, its lag and its lease."""
    found = client.request("GET", path_of("groups", group)).json()
    if as_json:
        say_json(found)
        return
    lease = found["lease"]
    if lease is not None:
        left = span(lease["expires_in_ms"] / 1000)
        lease = f"{lease['holder']}, generation {lease['generation']}, {left} left"
    say(
        outline(
            {
                "group": found["group"],
                "lag": f"{found['lag_records']:,} records, {size(found['lag_bytes'])}, "
                f"the oldest {span(found['lag_seconds'])} old",
                "last commit": moment(found["last_commit"]),
                "lease": lease,
            }
        )
    )
    names = ("topic", "committed", "log end", "lag", "lag bytes", "lag age", "last commit")
    rows = [
        (
            topic["topic"],
            topic["committed_offset"],
            topic["log_end_offset"],
            topic["lag_records"],
            size(topic["lag_bytes"]),
            span(topic["lag_seconds"]),
            moment(topic["last_commit"]),
        )
        for topic in found["topics"]
    ]
    say("\n" + table(names, rows, "no committed offsets"))


@groups.command()
@click.argument("group", shell_complete=group_names)
@click.argument("offsets", metavar="TOPIC=OFFSET...", nargs=-1, required=True)
@click.option("--allow-backward", is_flag=True, help="An offset may go back, too.")
@click.option(
    "--generation", type=click.IntRange(1), metavar="N", help="Of the lease that is held."
)
@talks
def commit(
    client: HttpClient,
    as_json: bool,
    group: str,
    offsets: tuple[str, ...],
    allow_backward: bool,
    generation: int | None,
) -> None:
    """Commit for GROUP that OFFSET is the next one to read of TOPIC; all of them or none."""
    body = {
        "offsets": dict(_offset(item) for item in offsets),
        "allow_backward": allow_backward,
        "generation": generation,
    }
    if len(body["offsets"]) != len(offsets):  # type: ignore[arg-type]
        raise click.UsageError("a topic is given twice")
    answer = client.request("PUT", path_of("groups", group, "offsets"), json_body=body).json()
    if as_json:
        say_json(answer)
    else:
        say(table(("topic", "committed"), list(answer["offsets"].items()), ""))


def _offset(item: str) -> tuple[str, int]:
    topic, _, text = item.rpartition("=")
    if not topic or not (text.isascii() and text.isdigit()):
        raise click.UsageError(f"{item!r} is not TOPIC=OFFSET")
    return topic, int(text)


@groups.command()
@click.argument("group", shell_complete=group_names)
@click.option("--to", metavar="WHERE", help="earliest, latest, an offset, -N (the last N), @time.")
@click.option("--shift", type=int, metavar="N", help="So many records on, or back when negative.")
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
    as_json: bool,
    group: str,
    to: str | None,
    shift: int | None,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Put GROUP somewhere else, forward or back. Stop its consumers first.

    Shows before and after, and asks.
    """
    if (to is None) == (shift is None):
        raise click.UsageError("say either --to or --shift")
    path = path_of("groups", group, "reset")
    body: Json = {"to": to} if to is not None else {"shift": shift}
    if topics:
        body["topics"] = list(topics)
    if dry_run or not yes:
        plan = client.request("POST", path, json_body={**body, "dry_run": True}).json()
        if dry_run:
            _show_reset(plan, as_json)
            return
        click.echo(_reset_table(plan), err=True)
        if plan["topics"]:
            ask(f"Put {group} there?")
    _show_reset(client.request("POST", path, json_body=body).json(), as_json)


def _show_reset(answer: Json, as_json: bool) -> None:
    if as_json:
        say_json(answer)
    else:
        say(_reset_table(answer))


def _reset_table(answer: Json) -> str:
    rows = [
        (row["topic"], row["before"], row["after"], _moved(row["before"], row["after"]))
        for row in answer["topics"]
    ]
    return table(("topic", "before", "after", "moves"), rows, "no topic to reset")


def _moved(before: int | None, after: int) -> int | None:
    return None if before is None else after - before


@groups.command()
@click.argument("group", shell_complete=group_names)
@yes_option
@talks
def delete(client: HttpClient, as_json: bool, group: str, yes: bool) -> None:
    """Delete GROUP: its committed offsets and its lease."""
    if not yes:
        found = client.request("GET", path_of("groups", group)).json()
        ask_for_the_name(f"the group and its offsets on {found['topic_count']:,} topics", group)
    client.request("DELETE", path_of("groups", group))
    if as_json:
        say_json({"deleted": group})
    else:
        say(f"{group} is deleted")

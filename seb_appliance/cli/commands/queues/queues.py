"""`seb queues …`: work queues, and what became of their records."""

from __future__ import annotations

from typing import Any, Final

import click

from seb_appliance.cli.commands.protocols.inlets import existing
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask,
    ask_for_the_name,
    declared_options,
    declared_value,
    talks,
    yes_option,
)
from seb_appliance.cli.output import moment, outline, span, table
from seb_appliance.formats.queues.queues import SETTINGS, flat, nested
from seb_appliance.quantities import counted

_UNSET: Final = "none"
_LEFT_ALONE: Final = {
    "before": "{:,} redriven before",
    "elsewhere": "{:,} left, because the queue does not read their topic (--to redrives them)",
}
_OPTIONS: Final = {name: one for name, one in SETTINGS.items() if name != "topics"}  # that is ours

queue_argument = click.argument("queue")


@click.group(cls=ListsByDefault)
def queues() -> None:
    """Work queues: list (the default), show, set, reset, purge, redrive, delete."""


@queues.command("list")
@talks
def list_queues(client: HttpClient) -> Result:
    """List the queues that the API key may see."""
    answer = client.ask("GET", "queues")
    names = ("queue", "topics", "ordering", "dead letters", "changed")
    return Result(answer, lambda _: table(names, map(_row, answer["queues"]), "no queues"))


def _row(queue: Json) -> tuple[Any, ...]:
    settings = queue["settings"]
    topics = ", ".join(settings["topics"])
    changed = moment(queue["updated"])
    return (queue["queue"], topics, settings["ordering"], settings["dead_letter"], changed)


@queues.command()
@queue_argument
@talks
def show(client: HttpClient, queue: str) -> Result:
    """Show the settings of QUEUE, and how many records wait, are out and are done."""
    return Result(client.ask("GET", "queues", queue), _outline)


def _outline(found: Json) -> str:
    values = flat(found["settings"])
    settings = {
        one.word: one.text(values[name])
        for name, one in SETTINGS.items()
        if values.get(name) is not None
    }
    shown = ("in_flight", "retrying", "parked", "doomed", "waiting_takers", "failure")
    members = {
        "queue": found["queue"],
        **settings,
        "changed": moment(found["updated"]),
        **{name: found[name] for name in shown if name in found},
    }
    if "topics" not in found:
        return outline(members)
    names = ("topic", "waiting", "oldest", "delayed", "acked", "rejected", "lost")
    topics = [one | {"oldest": span(one["oldest_s"])} for one in found["topics"]]
    rows = [tuple(one[name] for name in names) for one in topics]
    return f"{outline(members)}\n\n{table(names, rows, 'no topics')}"


@queues.command("set")
@queue_argument
@click.option("--topic", "topics", multiple=True, metavar="PATTERN", help="May be given again.")
@declared_options(_OPTIONS)
@talks
def set_queue(
    client: HttpClient, queue: str, topics: tuple[str, ...], **given: str | None
) -> Result:
    """Make QUEUE, or change what is named. A value of none removes a setting.

    A new queue needs --topic.
    """
    before = existing(client, "queues", queue)
    if before is None and not topics:
        raise click.UsageError("a new queue needs --topic")
    values: Json = {} if before is None else flat(before["settings"])
    if topics:
        values["topics"] = list(topics)
    for name, one in _OPTIONS.items():
        text = given[one.word]
        # `none` is a value of --ordering.
        unset = "" if one.choices else _UNSET
        if text is not None:
            values[name] = declared_value(f"--{one.word.replace('_', '-')}", one, text, unset)
            if values[name] is None:
                del values[name]
    return Result(client.ask("PUT", "queues", queue, body=nested(values)), _outline)


@queues.command()
@queue_argument
@click.option(
    "--to", metavar="WHERE", required=True, help="earliest, latest, N, -N (the last N), @time."
)
@click.option("--topic", metavar="TOPIC", help="Only this one.")
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@yes_option
@talks
def reset(
    client: HttpClient, queue: str, to: str, topic: str | None, dry_run: bool, yes: bool
) -> Result:
    """Hand out records of QUEUE again, or skip some. All leases end.

    Shows how many records are not done, and asks.
    """
    return _reset(client, queue, {"to": to, "topic": topic}, dry_run, yes)


@queues.command()
@queue_argument
@click.option("--topic", metavar="TOPIC", help="Only this one.")
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@yes_option
@talks
def purge(client: HttpClient, queue: str, topic: str | None, dry_run: bool, yes: bool) -> Result:
    """Drop what waits in QUEUE; the records stay in their topics. All leases end.

    Shows how many records are not done, and asks.
    """
    return _reset(client, queue, {"to": "latest", "topic": topic}, dry_run, yes)


def _reset(client: HttpClient, queue: str, body: Json, dry_run: bool, yes: bool) -> Result:
    path = ("queues", queue, "reset")
    if dry_run or not yes:
        planned = client.ask("POST", *path, body={**body, "dry_run": True})
        if dry_run:
            return Result(planned, _reset_table)
        click.echo(_reset_table(planned), err=True)
        ask(f"Begin {queue} there, and forget what is not done?")
    return Result(client.ask("POST", *path, body=body), _reset_table)


def _reset_table(answer: Json) -> str:
    rows = [(row["topic"], row["waiting"], row["offset"]) for row in answer["topics"]]
    return table(("topic", "not done", "begins at"), rows, "no topics")


@queues.command()
@queue_argument
@click.option(
    "--offset",
    "offsets",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="The dead letter at this offset of their topic. May be given again.",
)
@click.option("--topic", metavar="TOPIC", help="Only records of this topic.")
@click.option("--reason", metavar="TEXT", help="Only those whose reason contains this.")
@click.option("--to", metavar="TOPIC", help="Where they go. [the topic that they came from]")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@talks
def redrive(
    client: HttpClient, queue: str, offsets: tuple[int, ...], dry_run: bool, **which: str | None
) -> Result:
    """Make records of the dead letters of QUEUE again, each once."""
    body: Json = {name: value for name, value in which.items() if value is not None}
    body["dry_run"] = dry_run
    if offsets:
        body["offsets"] = list(offsets)
    records: dict[str, int] = {}
    total: Json = {"dry_run": dry_run, "records": records, **dict.fromkeys(_LEFT_ALONE, 0)}
    total["next_offset"] = 0
    while total["next_offset"] is not None:
        body["start"] = total["next_offset"]
        done = client.ask("POST", "queues", queue, "redrive", body=body)
        for name, count in done["records"].items():
            records[name] = records.get(name, 0) + count
        for why in _LEFT_ALONE:
            total[why] += done[why]
        total["next_offset"] = done["next_offset"]
    return Result(total, _redriven)


def _redriven(total: Json) -> str:
    rows = sorted(total["records"].items())
    left_alone = [words.format(total[why]) for why, words in _LEFT_ALONE.items() if total[why]]
    shown = table(("topic", "records"), rows, "" if left_alone else "nothing to redrive")
    return "\n".join(filter(None, [shown, *left_alone]))


@queues.command()
@queue_argument
@yes_option
@talks
def delete(client: HttpClient, queue: str, yes: bool) -> Result:
    """Delete QUEUE: what is not done is forgotten. Its topics and dead letters stay."""
    if not yes:
        found = client.ask("GET", "queues", queue)
        waiting = sum(topic["waiting"] for topic in found["topics"])
        ask_for_the_name(f"the queue, with {counted(waiting, 'record')} that are not done", queue)
    client.request("DELETE", "queues", queue)
    return Result({"deleted": queue}, f"{queue} deleted")

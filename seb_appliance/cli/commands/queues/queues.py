"""`seb queues …`: work queues, and what became of their records."""

from __future__ import annotations

from typing import Any, Final

import click

from seb_appliance.cli.commands.inlets import existing
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask_for_the_name,
    declared_options,
    declared_value,
    talks,
    yes_option,
)
from seb_appliance.cli.output import moment, outline, table
from seb_appliance.formats.queues.queues import SETTINGS, flat, nested

_UNSET: Final = "none"
_OPTIONS: Final = {name: one for name, one in SETTINGS.items() if name != "topics"}  # that is ours

queue_argument = click.argument("queue")


@click.group(cls=ListsByDefault)
def queues() -> None:
    """Work queues: list (the default), show, set, delete."""


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
    shown = ("in_flight", "delayed", "parked", "doomed", "waiting_takers", "failure")
    members = {
        "queue": found["queue"],
        **settings,
        "changed": moment(found["updated"]),
        **{name: found[name] for name in shown if name in found},
    }
    if "topics" not in found:
        return outline(members)
    names = ("topic", "waiting", "oldest_s", "acked", "rejected", "lost")
    rows = [tuple(one[name] for name in names) for one in found["topics"]]
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
@yes_option
@talks
def delete(client: HttpClient, queue: str, yes: bool) -> Result:
    """Delete QUEUE: what is not done is forgotten. Its topics and dead letters stay."""
    if not yes:
        found = client.ask("GET", "queues", queue)
        waiting = sum(topic["waiting"] for topic in found["topics"])
        ask_for_the_name(f"the queue, with {waiting:,} records that are not done", queue)
    client.request("DELETE", "queues", queue)
    return Result({"deleted": queue}, f"{queue} deleted")

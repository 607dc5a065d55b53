"""`seb queues …`: work queues, and what became of their records."""

from __future__ import annotations

from typing import Any, Final, get_args

import click

from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.errors import AnswerError
from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask_for_the_name,
    talks,
    yes_option,
)
from seb_appliance.cli.output import moment, outline, table
from seb_appliance.errors import NotFoundError
from seb_appliance.formats.queues.queues import Ordering, Start
from seb_appliance.quantities import duration_ms

_NONE: Final = "none"
_RETRY: Final = ("retry_min", "retry_max", "retry_factor", "retry_jitter")

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
    settings = dict(found["settings"])
    settings["topics"] = ", ".join(settings["topics"])
    settings["retry"] = ", ".join(f"{name} {value}" for name, value in settings["retry"].items())
    shown = ("in_flight", "delayed", "parked", "doomed", "waiting_takers", "failure")
    members = {
        "queue": found["queue"],
        **settings,
        "changed": moment(found["updated"]),
        **{name: found[name] for name in shown if name in found},
    }
    if "topics" not in found:
        return outline(members)
    names = ("topic", "waiting", "acked", "rejected", "lost")
    rows = [tuple(one[name] for name in names) for one in found["topics"]]
    return f"{outline(members)}\n\n{table(names, rows, 'no topics')}"


@queues.command("set")
@queue_argument
@click.option("--topic", "topics", multiple=True, metavar="PATTERN", help="May be given again.")
@click.option("--ordering", type=click.Choice(get_args(Ordering)), help="Order by record key?")
@click.option("--lease", metavar="TIME", help="How long a record is a worker's.")
@click.option("--max-deliveries", type=click.IntRange(1), metavar="N", help="Then it is dead.")
@click.option("--retry-min", metavar="TIME", help="Pause after the first failure.")
@click.option("--retry-max", metavar="TIME", help="The longest pause.")
@click.option("--retry-factor", type=float, metavar="F", help="By which each pause is longer.")
@click.option("--retry-jitter", type=float, metavar="J", help="Part of a pause that is random.")
@click.option("--dead-letter", metavar="TOPIC", help="Topic of dead letters; none: drop them.")
@click.option("--max-in-flight", type=click.IntRange(1), metavar="N", help="Records that are out.")
@click.option("--start", type=click.Choice(get_args(Start)), help="Where to begin in topics.")
@talks
def set_queue(client: HttpClient, queue: str, topics: tuple[str, ...], **given: Any) -> Result:
    """Make QUEUE, or change what is named. A new queue needs --topic."""
    body = _settings_of(client, queue)
    if topics:
        body["topics"] = list(topics)
    if "topics" not in body:
        raise click.UsageError("a new queue needs --topic")
    for name, value in given.items():
        if value is None:
            continue
        in_retry = name in _RETRY
        members = body.setdefault("retry", {}) if in_retry else body
        name = name.removeprefix("retry_") if in_retry else name
        if name in {"lease", "min", "max"} and isinstance(value, str):
            name, value = f"{name}_ms", _duration_ms(name, value)
        members[name] = None if name == "dead_letter" and value == _NONE else value
    return Result(client.ask("PUT", "queues", queue, body=body), _outline)


def _duration_ms(name: str, text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from error


def _settings_of(client: HttpClient, queue: str) -> Json:
    try:
        found: Json = client.ask("GET", "queues", queue)["settings"]
    except AnswerError as error:
        if error.status != NotFoundError.status:
            raise
        return {}
    return found


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

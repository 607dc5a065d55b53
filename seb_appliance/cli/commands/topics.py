"""`seb topics …`: list, create, fork, change, show, trim, reopen and delete topics."""

from __future__ import annotations

from typing import Any

import click

from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask_for_the_name,
    declared_options,
    declared_value,
    talks,
    topic_names,
    yes_option,
)
from seb_appliance.cli.output import Cell, moment, outline, size, table
from seb_appliance.formats.topic_settings import SETTINGS
from seb_appliance.quantities import counted, format_duration

BY_WORD = {one.word: one for one in SETTINGS.values()}
DEFAULT = "default"

name_argument = click.argument("name", shell_complete=topic_names)


def setting(word: str, text: str) -> tuple[str, Any]:
    """Member and value in the API; None for `default`. Raises UsageError."""
    if word not in BY_WORD:
        raise click.UsageError(f"a topic has no setting {word!r}; it has {', '.join(BY_WORD)}")
    return BY_WORD[word].name, declared_value(word, BY_WORD[word], text, DEFAULT)


@click.group(cls=ListsByDefault)
def topics() -> None:
    """Topics: list (the default), create, fork, change, show, trim, reopen, delete."""


@topics.command("list")
@click.option("--pattern", metavar="PATTERN", help="Such as orders.* (one word) or iot.**.")
@talks
def list_topics(client: HttpClient, pattern: str | None) -> Result:
    """List the topics that the API key may see."""
    answer = client.ask("GET", "topics", query={"pattern": pattern})
    names = ("topic", "records", "size", "log start", "log end", "linger", "created")
    return Result(answer, lambda _: table(names, map(_row, answer["topics"]), "no topics"))


def _row(topic: Json) -> tuple[Cell, ...]:
    linger = format_duration(topic["effective_settings"]["linger_ms"])
    bounds = (topic["log_start_offset"], topic["log_end_offset"])
    stored = (_records(topic), size(topic["size_bytes"]))
    return topic["topic"], *stored, *bounds, linger, moment(topic["created"])


def _put(client: HttpClient, name: str, body: Json) -> Result:
    answer = client.request("PUT", "topics", name, body=body)
    text = f"{name}: {'created' if answer.status == 201 else 'already exists'}"
    topic = answer.json()
    if topic["fork_of"] is not None:
        text += ", shares {topic} below offset {offset:,}".format(**topic["fork_of"])
    return Result(topic, text)


@topics.command()
@click.argument("name")
@declared_options(BY_WORD)
@talks
def create(client: HttpClient, name: str, **settings: str | None) -> Result:
    """Create the topic NAME, or check that it exists with these settings."""
    body = dict(setting(word, text) for word, text in settings.items() if text is not None)
    return _put(client, name, body)


@topics.command()
@click.argument("name")
@click.option(
    "--from",
    "parent",
    shell_complete=topic_names,
    required=True,
    metavar="TOPIC",
    help="The topic to fork.",
)
@click.option("--at", type=int, metavar="OFFSET", help="Share the records below it. [all]")
@talks
def fork(client: HttpClient, name: str, parent: str, at: int | None) -> Result:
    """Create the topic NAME, which shares the records of another topic without a copy."""
    return _put(client, name, {"fork_of": {"topic": parent, "offset": at}})


@topics.command(
    help=f"""Change settings of the topic NAME, such as linger=250ms retention=7d.

    Settings: {", ".join(f"{word}={one.metavar}" for word, one in BY_WORD.items())}. The value
    `{DEFAULT}` goes back to the appliance's own."""
)
@name_argument
@click.argument("items", metavar="SETTING=VALUE...", nargs=-1, required=True)
@talks
def change(client: HttpClient, name: str, items: tuple[str, ...]) -> Result:
    changes: Json = {}
    for item in items:
        word, equals, text = item.partition("=")
        if not equals:
            raise click.UsageError(f"{item!r} is not SETTING=VALUE")
        member, value = setting(word, text)
        if member in changes:
            raise click.UsageError(f"{word} is given twice")
        changes[member] = value
    return Result(client.ask("PATCH", "topics", name, body=changes), _outline)


@topics.command()
@name_argument
@talks
def show(client: HttpClient, name: str) -> Result:
    """Show the topic NAME: settings, offsets, size."""
    return Result(client.ask("GET", "topics", name), _outline)


def _outline(topic: Json) -> str:
    settings = {}
    for word, one in BY_WORD.items():
        whose = "default" if topic["settings"][one.name] is None else "set"
        value = one.text_or_unlimited(topic["effective_settings"][one.name])
        settings[word] = f"{value}  ({whose})"
    forked = topic["fork_of"]
    members = {
        "topic": topic["topic"],
        "topic id": topic["topic_id"],
        "fork of": f"{forked['topic']}, at offset {forked['offset']:,}" if forked else "-",
        "forks": topic["forks"],
        "closed": "yes, it takes no records" if topic["closed"] else "no",
        "created": moment(topic["created"]),
        "records": f"{_records(topic):,}",
        "size": size(topic["size_bytes"]),
        "log start offset": f"{topic['log_start_offset']:,}",
        "log end offset": f"{topic['log_end_offset']:,}",
        "settings": settings,
    }
    return outline(members)


def _records(topic: Json) -> int:
    count: int = topic["log_end_offset"] - topic["log_start_offset"]
    return count


@topics.command()
@name_argument
@click.option("--before", type=int, required=True, metavar="OFFSET", help="The first that stays.")
@yes_option
@talks
def trim(client: HttpClient, name: str, before: int, yes: bool) -> Result:
    """Remove the records of the topic NAME below an offset."""
    if not yes:
        start = client.ask("GET", "topics", name)["log_start_offset"]
        ask_for_the_name(f"{counted(max(0, before - start), 'record')} of the topic", name)
    answer = client.ask("POST", "topics", name, "trim", body={"before": before})
    return Result(answer, f"the log of {name} starts at {answer['log_start_offset']:,}")


@topics.command()
@name_argument
@talks
def reopen(client: HttpClient, name: str) -> Result:
    """Let the closed stream NAME take records again. Needs an admin key."""
    return Result(client.ask("POST", "topics", name, "reopen"), f"{name} takes records")


@topics.command()
@name_argument
@yes_option
@talks
def delete(client: HttpClient, name: str, yes: bool) -> Result:
    """Delete the topic NAME with its records, and the offsets that groups have on it."""
    if not yes:
        count = _records(client.ask("GET", "topics", name))
        ask_for_the_name(f"the topic and its {counted(count, 'record')}", name)
    client.request("DELETE", "topics", name)
    return Result({"deleted": name}, f"{name} deleted")

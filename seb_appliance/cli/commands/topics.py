"""`seb topics …`: list, make, fork, change, show, trim, reopen and delete topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.completing import topic_names
from seb_appliance.cli.output import moment, outline, say, say_json, size, table
from seb_appliance.cli.remote import ListsByDefault, ask_for_the_name, talks, yes_option
from seb_appliance.quantities import duration_ms, format_duration, format_size, size_bytes

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

Topic = dict[str, Any]


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError(f"{text!r} is neither on nor off")
    return text == "on"


def _for_ever(shown: Callable[[int], str]) -> Callable[[int | None], str]:
    return lambda value: "for ever" if value is None else shown(value)


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"{text!r} is none of {' '.join(names)}")
        return text

    return parse


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share < 1:  # also what is no number
        raise ValueError(f"{text} is not between 0 and 1")
    return share


# As people name a topic's setting → its member in the API, and how its value is read and shown.
SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any], Callable[[Any], str]]]] = {
    "linger": ("linger_ms", duration_ms, format_duration),
    "early_flush": ("early_flush", _switch, lambda on: "on" if on else "off"),
    "max_record_bytes": ("max_record_bytes", size_bytes, format_size),
    "retention": ("retention_ms", duration_ms, _for_ever(format_duration)),
    "retention_bytes": ("retention_bytes", size_bytes, _for_ever(format_size)),
    "key_index": ("key_index", _one_of("latest", "history", "none"), str),
    "compression": ("compression", _one_of("none", "zstd"), str),
    "cleanup": ("cleanup", _one_of("delete", "compact", "compact,delete", "none"), str),
    "min_compaction_lag": ("min_compaction_lag_ms", duration_ms, format_duration),
    "tombstone_retention": ("tombstone_retention_ms", duration_ms, format_duration),
    "dirty_ratio": ("dirty_ratio", _share, str),
}
DEFAULT: Final = "default"


def setting(name: str, text: str) -> tuple[str, Any]:
    """Member and value in the API; None for `default`. Raises UsageError."""
    if name not in SETTINGS:
        raise click.UsageError(f"a topic has no setting {name!r}, only {', '.join(SETTINGS)}")
    member, parse, _ = SETTINGS[name]
    try:
        return member, None if text == DEFAULT else parse(text)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from error


@click.group(cls=ListsByDefault)
def topics() -> None:
    """Topics: list (also without a command), create, fork, change, show, trim, reopen, delete."""


@topics.command("list")
@click.option("--pattern", metavar="PATTERN", help="Such as orders.* (one word) or iot.**.")
@talks
def list_topics(client: HttpClient, as_json: bool, pattern: str | None) -> None:
    """List the topics that the API key may see."""
    answer = client.request("GET", path_of("topics"), query={"pattern": pattern}).json()
    if as_json:
        say_json(answer)
        return
    names = ("topic", "records", "size", "log start", "log end", "linger", "created")
    say(table(names, [_row(topic) for topic in answer["topics"]], "no topics"))


def _row(topic: Topic) -> tuple[str | int | None, ...]:
    start, end = topic["log_start_offset"], topic["log_end_offset"]
    linger = format_duration(topic["effective_settings"]["linger_ms"])
    stored = size(topic["size_bytes"])
    return topic["topic"], end - start, stored, start, end, linger, moment(topic["created"])


@topics.command()
@click.argument("name")
@click.option("--linger", metavar="DURATION", help="How long its records may wait for others.")
@click.option("--early-flush", metavar="on|off", help="Close the window at once on an idle system.")
@click.option("--max-record-bytes", metavar="SIZE", help="Largest value of a record.")
@click.option("--retention", metavar="DURATION", help="How old its records may become.")
@click.option("--retention-bytes", metavar="SIZE", help="How many bytes of records it keeps.")
@click.option("--key-index", metavar="latest|history|none", help="What to keep of record keys.")
@click.option("--compression", metavar="none|zstd", help="How its records are stored.")
@click.option("--cleanup", metavar="WHAT", help="delete, compact, compact,delete or none.")
@click.option("--min-compaction-lag", metavar="DURATION", help="Younger records stay as they are.")
@click.option("--tombstone-retention", metavar="DURATION", help="How long tombstones stay.")
@click.option("--dirty-ratio", metavar="0.01-0.99", help="Compact once so much of it is dirty.")
@talks
def create(client: HttpClient, as_json: bool, name: str, **settings: str | None) -> None:
    """Make the topic NAME, or check that it is there with these settings."""
    wanted = dict(setting(key, text) for key, text in settings.items() if text is not None)
    answer = client.request("PUT", path_of("topics", name), json_body=wanted)
    if as_json:
        say_json(answer.json())
    elif answer.status == 201:
        say(f"{name} is made")
    else:
        say(f"{name} is there already, with these settings")


@topics.command()
@click.argument("name")
@click.option(
    "--from",
    "parent",
    shell_complete=topic_names,
    required=True,
    metavar="TOPIC",
    help="Whose records it shares.",
)
@click.option("--at", type=int, metavar="OFFSET", help="It shares those below; else all.")
@talks
def fork(client: HttpClient, as_json: bool, name: str, parent: str, at: int | None) -> None:
    """Make the topic NAME, which shares the records of another, without a copy."""
    wanted = {"fork_of": {"topic": parent, "offset": at}}
    answer = client.request("PUT", path_of("topics", name), json_body=wanted)
    topic: Topic = answer.json()
    if as_json:
        say_json(topic)
    else:
        how = "is made" if answer.status == 201 else "is there already"
        say(f"{name} {how}: it shares {parent} below offset {topic['fork_of']['offset']:,}")


@topics.command()
@click.argument("name", shell_complete=topic_names)
@click.argument("settings", metavar="SETTING=VALUE...", nargs=-1, required=True)
@talks
def change(client: HttpClient, as_json: bool, name: str, settings: tuple[str, ...]) -> None:
    """Change settings of the topic NAME: linger=250ms, early_flush=on, max_record_bytes=64KiB,
    retention=7d, retention_bytes=1GiB, key_index=latest, compression=none, cleanup=compact.

    The value `default` goes back to the appliance's own.
    """
    changes: dict[str, Any] = {}
    for item in settings:
        key, equals, text = item.partition("=")
        if not equals:
            raise click.UsageError(f"{item!r} is not SETTING=VALUE")
        member, value = setting(key, text)
        if member in changes:
            raise click.UsageError(f"{key} is given twice")
        changes[member] = value
    answer = client.request("PATCH", path_of("topics", name), json_body=changes).json()
    _show(answer, as_json)


@topics.command()
@click.argument("name", shell_complete=topic_names)
@talks
def show(client: HttpClient, as_json: bool, name: str) -> None:
    """Show the topic NAME: settings, offsets, size."""
    _show(_topic(client, name), as_json)


def _topic(client: HttpClient, name: str) -> Topic:
    topic: Topic = client.request("GET", path_of("topics", name)).json()
    return topic


def _show(topic: Topic, as_json: bool) -> None:
    if as_json:
        say_json(topic)
        return
    settings = {}
    for name, (member, _, shown) in SETTINGS.items():
        whose = "the appliance's" if topic["settings"][member] is None else "its own"
        settings[name] = f"{shown(topic['effective_settings'][member])}  ({whose})"
    records = topic["log_end_offset"] - topic["log_start_offset"]
    forked = topic["fork_of"]
    say(
        outline(
            {
                "topic": topic["topic"],
                "topic id": topic["topic_id"],
                "fork of": f"{forked['topic']}, at offset {forked['offset']:,}" if forked else "-",
                "forks": topic["forks"],
                "closed": "yes, it takes no records" if topic["closed"] else "no",
                "created": moment(topic["created"]),
                "records": f"{records:,}",
                "size": size(topic["size_bytes"]),
                "log start offset": f"{topic['log_start_offset']:,}",
                "log end offset": f"{topic['log_end_offset']:,}",
                "settings": settings,
            }
        )
    )


@topics.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--before", type=int, required=True, metavar="OFFSET", help="The first that stays.")
@yes_option
@talks
def trim(client: HttpClient, as_json: bool, name: str, before: int, yes: bool) -> None:
    """Remove the records of the topic NAME below an offset."""
    if not yes:
        start = _topic(client, name)["log_start_offset"]
        ask_for_the_name(f"{max(0, before - start):,} records of the topic", name)
    path = path_of("topics", name, "trim")
    answer = client.request("POST", path, json_body={"before": before}).json()
    if as_json:
        say_json(answer)
    else:
        say(f"the log of {name} starts at {answer['log_start_offset']:,}")


@topics.command()
@click.argument("name", shell_complete=topic_names)
@talks
def reopen(client: HttpClient, as_json: bool, name: str) -> None:
    """Let the closed stream NAME take records again; it needs an admin key."""
    answer = client.request("POST", path_of("topics", name, "reopen")).json()
    if as_json:
        say_json(answer)
    else:
        say(f"{name} takes records")


@topics.command()
@click.argument("name", shell_complete=topic_names)
@yes_option
@talks
def delete(client: HttpClient, as_json: bool, name: str, yes: bool) -> None:
    """Delete the topic NAME with its records, and the offsets that groups have on it."""
    if not yes:
        topic = _topic(client, name)
        records = topic["log_end_offset"] - topic["log_start_offset"]
        ask_for_the_name(f"the topic and its {records:,} records", name)
    client.request("DELETE", path_of("topics", name))
    if as_json:
        say_json({"deleted": name})
    else:
        say(f"{name} is deleted")

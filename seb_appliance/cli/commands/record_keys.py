"""`seb record-keys …`: which record keys a topic has, the newest record of one, its history."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.completing import topic_names
from seb_appliance.cli.output import moment, printable, say, say_json, table, write
from seb_appliance.cli.remote import ask_for_the_name, talks, yes_option

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

Json = dict[str, Any]

PAGE: Final = 1_000


@click.group(name="record-keys")
def record_keys() -> None:
    """Record keys of a topic with a key index: list, latest, history, delete."""


fresh_option = click.option("--fresh", is_flag=True, help="Wait for the newest records first.")
base64_option = click.option("--base64", "is_base64", is_flag=True, help="KEY is in base64.")


def _named(key: str, is_base64: bool) -> Json:
    return {"key_base64" if is_base64 else "key": key}


def _cell(record: Json, name: str) -> str | None:
    """A record key or value for a table: in base64 where it is no text."""
    binary = record.get(f"{name}_base64")
    if binary is not None:
        return f"base64:{binary}"
    text: str | None = record[name]
    return text


@record_keys.command("list")
@click.argument("topic", shell_complete=topic_names)
@click.option("--prefix", default="", metavar="TEXT", help="Only record keys that begin so.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most N.")
@fresh_option
@talks
def list_keys(
    client: HttpClient, as_json: bool, topic: str, prefix: str, most: int | None, fresh: bool
) -> None:
    """List the record keys of TOPIC whose newest record is no tombstone."""
    found: list[Json] = []
    question: Json = {"prefix": prefix, "fresh": fresh}
    while True:
        room = PAGE if most is None else min(PAGE, most - len(found))
        page = client.request(
            "POST", path_of("topics", topic, "keys"), json_body={**question, "limit": room}
        ).json()
        found += page["keys"]
        after = {name: page[f"next_{name}"] for name in ("after", "after_base64")}
        if after == {"after": None, "after_base64": None} or len(found) == most:
            break
        question = {"prefix": prefix, **after}
    if as_json:
        say_json({"keys": found, "indexed_offset": page["indexed_offset"]})
        return
    rows = [(_cell(row, "key"), row["offset"], moment(row["timestamp"])) for row in found]
    say(table(("key", "offset", "timestamp"), rows, "no record keys"))


@record_keys.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("key")
@base64_option
@fresh_option
@talks
def latest(
    client: HttpClient, as_json: bool, topic: str, key: str, is_base64: bool, fresh: bool
) -> None:
    """Write the value of the newest record of KEY to stdout."""
    path = path_of("topics", topic, "keys", "latest")
    question = {**_named(key, is_base64), "fresh": fresh}
    answer = client.request("POST", path, json_body=question).json()
    if as_json:
        say_json(answer)
        return
    record = answer["record"]
    binary = record.get("value_base64")
    value = record["value"].encode() if binary is None else base64.b64decode(binary)
    write(value + b"\n")


@record_keys.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("key")
@base64_option
@click.option(
    "--max", "most", type=click.IntRange(1, PAGE), default=100, metavar="N", help="At most N. [100]"
)
@click.option("--before", type=click.IntRange(0), metavar="OFFSET", help="Only below this offset.")
@fresh_option
@talks
def history(
    client: HttpClient,
    as_json: bool,
    topic: str,
    key: str,
    is_base64: bool,
    most: int,
    before: int | None,
    fresh: bool,
) -> None:
    """Show the records of KEY that are still stored, newest first; - is a tombstone."""
    question = {**_named(key, is_base64), "limit": most, "before": before, "fresh": fresh}
    path = path_of("topics", topic, "keys", "history")
    answer = client.request("POST", path, json_body=question).json()
    if as_json:
        say_json(answer)
        return
    rows = [
        (record["offset"], moment(record["timestamp"]), _cell(record, "value"))
        for record in answer["records"]
    ]
    say(table(("offset", "timestamp", "value"), rows, "no records"))


@record_keys.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("key")
@base64_option
@yes_option
@talks
def delete(
    client: HttpClient, as_json: bool, topic: str, key: str, is_base64: bool, yes: bool
) -> None:
    """Append a tombstone for KEY to TOPIC."""
    if not yes:
        ask_for_the_name("the value of this record key", key)
    answer = client.request(
        "DELETE", path_of("topics", topic, "keys"), query=_named(key, is_base64)
    )
    if as_json:
        say_json(answer.json())
    else:
        say(f"{printable(key)} is deleted, at offset {answer.json()['offset']:,}")

"""`seb record-keys …`: the record keys of a topic, the newest record of one, its history."""

from __future__ import annotations

import base64
from typing import Final

import click

from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import (
    Json,
    Result,
    WholeSentences,
    ask_for_the_name,
    connects,
    talks,
    topic_argument,
    yes_option,
)
from seb_appliance.cli.output import moment, say_json, table, write
from seb_appliance.errors import printable

PAGE: Final = 1_000

key_argument = click.argument("key")
fresh_option = click.option("--fresh", is_flag=True, help="Wait for the newest records first.")
base64_option = click.option("--base64", "is_base64", is_flag=True, help="KEY is in base64.")


@click.group(name="record-keys", cls=WholeSentences)
def record_keys() -> None:
    """Record keys of a topic with a key index: list, latest, history, delete."""


def _named(key: str, is_base64: bool) -> Json:
    return {"key_base64" if is_base64 else "key": key}


def _cell(record: Json, name: str) -> str | None:
    """A record key or value for a table: in base64 if it is not text."""
    binary = record.get(f"{name}_base64")
    text: str | None = record[name] if binary is None else f"base64:{binary}"
    return text


@record_keys.command("list")
@topic_argument
@click.option("--prefix", default="", metavar="TEXT", help="Only record keys with this prefix.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most N.")
@fresh_option
@talks
def list_keys(client: HttpClient, topic: str, prefix: str, most: int | None, fresh: bool) -> Result:
    """List the record keys of TOPIC whose newest record is not a tombstone."""
    found: list[Json] = []
    question: Json = {"prefix": prefix, "fresh": fresh}
    while True:
        room = PAGE if most is None else min(PAGE, most - len(found))
        page = client.ask("POST", "topics", topic, "keys", body={**question, "limit": room})
        found += page["keys"]
        after = {name: page[f"next_{name}"] for name in ("after", "after_base64")}
        if not any(value is not None for value in after.values()) or len(found) == most:
            break
        question = {"prefix": prefix, **after}
    rows = ((_cell(row, "key"), row["offset"], moment(row["timestamp"])) for row in found)
    return Result(
        {"keys": found, "indexed_offset": page["indexed_offset"]},
        lambda _: table(("key", "offset", "timestamp"), rows, "no record keys"),
    )


@record_keys.command()
@topic_argument
@key_argument
@base64_option
@fresh_option
@connects
def latest(
    client: HttpClient, as_json: bool, topic: str, key: str, is_base64: bool, fresh: bool
) -> None:
    """Write the value of the newest record of KEY to stdout."""
    question = {**_named(key, is_base64), "fresh": fresh}
    answer = client.ask("POST", "topics", topic, "keys", "latest", body=question)
    if as_json:
        say_json(answer)
        return
    record = answer["record"]
    binary = record.get("value_base64")
    value = record["value"].encode() if binary is None else base64.b64decode(binary)
    write(value + b"\n")


@record_keys.command()
@topic_argument
@key_argument
@base64_option
@click.option(
    "--max", "most", type=click.IntRange(1, PAGE), default=100, metavar="N", help="At most N. [100]"
)
@click.option("--before", type=click.IntRange(0), metavar="OFFSET", help="Only below this offset.")
@fresh_option
@talks
def history(
    client: HttpClient,
    topic: str,
    key: str,
    is_base64: bool,
    most: int,
    before: int | None,
    fresh: bool,
) -> Result:
    """Show the records of KEY that are still stored, newest first; - is a tombstone."""
    question = {**_named(key, is_base64), "limit": most, "before": before, "fresh": fresh}
    answer = client.ask("POST", "topics", topic, "keys", "history", body=question)
    rows = (
        (record["offset"], moment(record["timestamp"]), _cell(record, "value"))
        for record in answer["records"]
    )
    return Result(answer, lambda _: table(("offset", "timestamp", "value"), rows, "no records"))


@record_keys.command()
@topic_argument
@key_argument
@base64_option
@yes_option
@talks
def delete(client: HttpClient, topic: str, key: str, is_base64: bool, yes: bool) -> Result:
    """Append a tombstone for KEY to TOPIC."""
    if not yes:
        ask_for_the_name("the value of this record key", key)
    answer = client.ask("DELETE", "topics", topic, "keys", query=_named(key, is_base64))
    return Result(answer, lambda _: f"{printable(key)} deleted, at offset {answer['offset']:,}")

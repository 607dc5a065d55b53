"""`seb connections …`: who is connected to the ports of MQTT and other protocols."""

from __future__ import annotations

from typing import Any

import click

from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import Json, ListsByDefault, Result, talks
from seb_appliance.cli.output import moment, span, table


@click.group(cls=ListsByDefault)
def connections() -> None:
    """Connections to the ports of protocols: list (the default), close."""


@connections.command("list")
@talks
def list_connections(client: HttpClient) -> Result:
    """List who is connected, and who has a session and is away."""
    answer = client.ask("GET", "connections")
    whose = ("number", "client", "protocol", "API key", "address")
    names = (*whose, "since", "received", "sent", "stalled")
    rows = map(_row, answer["connections"])
    return Result(answer, lambda _: table(names, rows, "no client is connected or has a session"))


def _row(one: Json) -> tuple[Any, ...]:
    names = ("connection", "client", "protocol", "api_key_id", "address")
    shown = (one[name] for name in names)
    since = f"away until {moment(one['until'])}" if one["until"] else moment(one["since"])
    stalled = one["stalled"]
    if stalled is not None:
        waits = span(stalled["window_ms"] / 1000)
        stalled = f"{stalled['in_flight']:,} wait {waits} for the window of {stalled['topic']}"
    return (*shown, since, one["received"], one["sent"], stalled)


@connections.command()
@click.argument("number", type=click.IntRange(0))
@talks
def close(client: HttpClient, number: int) -> Result:
    """End connection or session NUMBER. Its client may come again."""
    client.request("DELETE", "connections", str(number))
    return Result({"closed": number}, f"{number} is ended")

"""`seb subscriptions …`: queues whose records the appliance sends to a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from seb_appliance.cli.commands.protocols.inlets import existing, read_secret, words
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask,
    declared_options,
    declared_value,
    file_option,
    talks,
    yes_option,
)
from seb_appliance.cli.output import moment, outline, table, tell
from seb_appliance.errors import ConfigurationError
from seb_appliance.protocols.subscriptions.settings import SETTINGS

_UNSET: Final = "none"
_PATH: Final = "subscriptions"
_OPTIONS: Final = {name: one for name, one in SETTINGS.items() if name != "url"}  # that is ours
_SHOWN: Final = 20  # of the log of requests

name_argument = click.argument("subscription")


@click.group(cls=ListsByDefault)
def subscriptions() -> None:
    """Queues sent to a URL: list (the default), show, set, pause, resume, test, replay, delete."""


@subscriptions.command("list")
@talks
def list_subscriptions(client: HttpClient) -> Result:
    """List the subscriptions to queues that the API key manages."""
    answer = client.ask("GET", _PATH)
    names = ("subscription", "topics", "url", "body", "state", "failing since")
    return Result(answer, lambda _: table(names, map(_row, answer[_PATH]), "no subscriptions"))


def _row(one: Json) -> tuple[Any, ...]:
    settings, since = one["settings"], one["failing_since"]
    shape = settings.get("body", SETTINGS["body"].default)
    topics = ", ".join(one["topics"] or ["-"])
    failing = moment(since) if since else "-"
    return one["subscription"], topics, settings["url"], shape, one["state"], failing


@subscriptions.command()
@name_argument
@talks
def show(client: HttpClient, subscription: str) -> Result:
    """Show the settings of SUBSCRIPTION, and its latest requests."""
    found = client.ask("GET", _PATH, subscription)
    log = client.ask("GET", _PATH, subscription, "deliveries", query={"limit": _SHOWN})
    return Result(found | log, f"{_outline(found)}\n\n{_requests(log['deliveries'])}")


def _outline(found: Json) -> str:
    settings = {
        one.word: one.text(found["settings"][name])
        for name, one in SETTINGS.items()
        if found["settings"].get(name) is not None
    }
    others = ("topics", "headers", "secrets", "state", "why", "failure", "on_its_way", "secret")
    since = found["failing_since"]
    members = {
        "subscription": found["subscription"],
        **settings,
        **{name: words(found[name]) for name in others if found.get(name)},
        **({"failing since": moment(since)} if since else {}),
        "changed": moment(found["updated"]),
    }
    return outline(members)


def _requests(log: list[Json]) -> str:
    names = ("sent", "record", "attempt", "status", "ms", "outcome", "answer")
    rows = [
        (
            moment(one["at"]),
            f"{one['topic']} {one['offset']}" if one["topic"] else "-",
            one["attempt"],
            one["status"] or "-",
            one["took_ms"],
            one["outcome"],
            one["detail"] or "-",
        )
        for one in log
    ]
    return table(names, rows, "no requests since the appliance started")


@subscriptions.command("set")
@name_argument
@click.option("--topic", "topics", multiple=True, metavar="PATTERN", help="May be given again.")
@click.option("--to", metavar="URL", help="Where records are sent.")
@declared_options(_OPTIONS)
@file_option(
    "--secret-file",
    "Read the signing secret from this file (- is stdin). A new one gets a random one without it.",
)
@file_option("--headers-file", "Send these headers, too: a line NAME: VALUE for each.")
@click.option("--rotate", is_flag=True, help="The secret of now signs beside the new one.")
@click.option("--end-previous", is_flag=True, help="Only the newest secret signs.")
@talks
def set_subscription(
    client: HttpClient,
    subscription: str,
    topics: tuple[str, ...],
    to: str | None,
    secret_file: Path | None,
    headers_file: Path | None,
    rotate: bool,
    end_previous: bool,
    **given: str | None,
) -> Result:
    """Create SUBSCRIPTION, or change what is named. A value of none removes a setting.

    A new one needs --to, and --topic unless its queue exists.
    """
    before = existing(client, _PATH, subscription)
    if before is None and to is None:
        raise click.UsageError("a new subscription needs --to")
    body: Json = {} if before is None else before["settings"]
    if to is not None:
        body["url"] = to
    for name, one in _OPTIONS.items():
        text = given[one.word]
        if text is not None:
            flag = f"--{one.word.replace('_', '-')}"
            body[name] = declared_value(flag, one, text, _UNSET)
            if body[name] is None:
                del body[name]
    body |= {"keep_previous": rotate, "end_previous": end_previous}
    if topics:
        body["topics"] = list(topics)
    if secret_file is not None:
        body["secrets"] = [read_secret(secret_file)]
    if headers_file is not None:
        body["headers"] = _headers(headers_file)
    made = client.ask("PUT", _PATH, subscription, body=body)
    note = "Enter the secret at the receiver. It is not shown again."
    return Result(made, _outline, note=note if "secret" in made else "")


def _headers(path: Path) -> dict[str, str]:
    """Raises ConfigurationError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path} ({error})") from error
    parts = [line.partition(":") for line in lines if line.strip()]
    if any(not colon for _, colon, _ in parts):
        raise ConfigurationError(f"{path} must hold lines NAME: VALUE")
    return {name.strip(): value.strip() for name, _, value in parts}


@subscriptions.command()
@name_argument
@talks
def pause(client: HttpClient, subscription: str) -> Result:
    """Send nothing of SUBSCRIPTION until it is resumed."""
    return Result(client.ask("POST", _PATH, subscription, "pause"), _outline)


@subscriptions.command()
@name_argument
@talks
def resume(client: HttpClient, subscription: str) -> Result:
    """Send again at once, also after it was disabled."""
    return Result(client.ask("POST", _PATH, subscription, "resume"), _outline)


@subscriptions.command()
@name_argument
@talks
def test(client: HttpClient, subscription: str) -> Result:
    """Send a signed request without a record, and show the answer."""
    sent = client.ask("POST", _PATH, subscription, "test")
    return Result(sent, _requests([sent]), exit_code=0 if 200 <= sent["status"] < 300 else 1)


@subscriptions.command()
@name_argument
@click.argument("offset")
@click.option("--topic", help="Only this topic. Default: all that the queue reads.")
@yes_option
@talks
def replay(
    client: HttpClient, subscription: str, offset: str, topic: str | None, yes: bool
) -> Result:
    """Send records again from OFFSET on, or skip those before it.

    OFFSET: an offset, earliest, latest, -N or @time.
    """
    if not yes:
        ask(f"Send what {subscription} reads from {offset} on again?")
    body = {"offset": offset, "topic": topic}
    begun = client.ask("POST", _PATH, subscription, "replay", body=body)
    return Result(begun, table(("topic", "from"), begun["offsets"].items(), "no topics"))


@subscriptions.command()
@name_argument
@yes_option
@talks
def delete(client: HttpClient, subscription: str, yes: bool) -> Result:
    """Delete SUBSCRIPTION: nothing more is sent. Its queue stays."""
    if not yes:
        tell(_outline(client.ask("GET", _PATH, subscription)))
        ask("Delete it?")
    client.request("DELETE", _PATH, subscription)
    return Result({"deleted": subscription}, f"{subscription} deleted")
